/** Decisions made by key: edits run one after the other, while the next entry is shown already. */

import { app } from "./app.svelte";

/** Runs tasks in the order in which they were given, one at a time. */
export class TaskQueue {
  waiting = $state(0);
  #last: Promise<unknown> = Promise.resolve();

  /** Adds a task; `failed` is called if it throws, and the tasks after it still run. */
  add(run: () => Promise<unknown>, failed: () => void = () => undefined): void {
    this.waiting += 1;
    this.#last = this.#last
      .then(run)
      .catch((error: unknown) => {
        app.fail(error);
        failed();
      })
      .finally(() => (this.waiting -= 1));
  }

  async idle(): Promise<void> {
    await this.#last;
  }
}

/** A session of labeling the rows of a file, the most useful ones first. */

import * as api from "./api";
import { app } from "./app.svelte";
import { TaskQueue } from "./decisions.svelte";
import * as format from "./format";
import type { Label, RowFile, Suggestion, Suggestions } from "./types";

export const STRATEGIES = [
  { id: "default", name: "Recommended", does: "Uncertainty, novelty and diversity together." },
  { id: "uncertainty", name: "Uncertainty", does: "Rows that the model is least sure about." },
  { id: "diversity", name: "Novelty", does: "Rows unlike anything that the model remembers." },
  { id: "random", name: "Random", does: "Rows in random order, for comparison." },
] as const;

export type Strategy = (typeof STRATEGIES)[number]["id"];

const BATCH = 10;

interface Labeled {
  row: number;
  label: Label | null;
}

export class LabelingSession {
  strategy = $state<Strategy>("default");
  batch = $state.raw<Suggestions | null>(null);
  problem = $state.raw<unknown>(null);
  isBusy = $state(false);
  made = $state.raw<Labeled[]>([]);
  track = $state.raw<{ x: number; y: number }[]>([]);
  readonly tasks = new TaskQueue();
  #asked = 0;

  constructor(readonly file: RowFile) {}

  get done(): ReadonlySet<number> {
    return new Set(this.made.map((one) => one.row));
  }

  get waiting(): Suggestion[] {
    const done = this.done;
    return (this.batch?.suggestions ?? []).filter((one) => !done.has(one.row));
  }

  get current(): Suggestion | null {
    return this.waiting[0] ?? null;
  }

  get nLabeled(): number {
    return this.made.filter((one) => one.label !== null).length;
  }

  /** Asks for suggestions; the row that a person looks at stays in front. */
  async refresh(): Promise<void> {
    this.#asked += 1;
    const mine = this.#asked;
    this.isBusy = true;
    try {
      const found = await api.suggest(this.file.id, BATCH, this.strategy, [...this.done]);
      if (mine !== this.#asked) return;
      const shown = this.current;
      const rest = found.suggestions.filter((one) => one.row !== shown?.row);
      const front = shown ? [found.suggestions.find((one) => one.row === shown.row) ?? shown] : [];
      this.batch = { ...found, suggestions: [...front, ...rest] };
      this.problem = null;
      if (found.expected_accuracy !== null) this.#note(found.expected_accuracy);
    } catch (error) {
      if (mine === this.#asked) this.problem = error;
    } finally {
      if (mine === this.#asked) this.isBusy = false;
    }
  }

  #note(accuracy: number): void {
    const x = this.nLabeled;
    this.track = [...this.track.filter((one) => one.x !== x), { x, y: accuracy }].sort((a, b) => a.x - b.x);
  }

  choose(strategy: Strategy): void {
    this.strategy = strategy;
    this.batch = null;
    void this.refresh();
  }

  skip(): void {
    const one = this.current;
    if (!one) return;
    this.made = [...this.made, { row: one.row, label: null }];
    if (this.waiting.length === 0) void this.refresh();
  }

  label(label: Label): void {
    const one = this.current;
    if (!one) return;
    if (!app.canEdit) return app.say(app.whyNoEdits);
    const made = { row: one.row, label };
    this.made = [...this.made, made];
    this.tasks.add(
      async () => {
        const source = { file: this.file.id, rows_of_file: [one.row] };
        await app.edit(() => api.add(source, [label], { by: app.by, message: `Labeled row ${one.row} of ${this.file.name}` }), `Row ${one.row} is ${format.label(label)}. The model knows it.`);
        if (this.tasks.waiting <= 1) await this.refresh();
      },
      () => (this.made = this.made.filter((other) => other !== made)),
    );
  }

  undo(): void {
    const made = this.made.at(-1);
    if (!made) return app.say("There is no label of this session to undo.");
    this.made = this.made.slice(0, -1);
    const show = (): void => {
      const known = this.batch?.suggestions.find((one) => one.row === made.row);
      if (this.batch && known) this.batch = { ...this.batch, suggestions: [known, ...this.batch.suggestions.filter((one) => one !== known)] };
    };
    if (made.label === null) return show();
    this.tasks.add(
      async () => {
        await app.edit(() => api.undo({ by: app.by, expected_version: app.version }), `Undone: the label of row ${made.row}.`);
        this.track = this.track.filter((one) => one.x <= this.nLabeled);
        show();
        await this.refresh();
      },
      () => (this.made = [...this.made, made]),
    );
  }
}

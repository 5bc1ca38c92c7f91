/** Edits of neighbors that are planned and previewed, but not made yet. */

import * as format from "./format";
import type { Id, Label, Neighbor, Relabeling } from "./types";

export class EditPlan {
  forget = $state<Id[]>([]);
  relabel = $state<Relabeling[]>([]);

  get isEmpty(): boolean {
    return this.forget.length + this.relabel.length === 0;
  }

  /** What is planned for each entry, in words. */
  get remarks(): Map<Id, string> {
    return new Map<Id, string>([
      ...this.forget.map((id): [Id, string] => [id, "to be forgotten"]),
      ...this.relabel.map((one): [Id, string] => [one.id, `to become ${format.label(one.label)}`]),
    ]);
  }

  toggleForget(id: Id): void {
    const was = this.forget.includes(id);
    this.drop(id);
    if (!was) this.forget = [...this.forget, id];
  }

  setLabel(neighbor: Neighbor, label: Label): void {
    this.drop(neighbor.id);
    if (label !== neighbor.label) this.relabel = [...this.relabel, { id: neighbor.id, label }];
  }

  drop(id: Id): void {
    this.forget = this.forget.filter((one) => one !== id);
    this.relabel = this.relabel.filter((one) => one.id !== id);
  }

  clear(): void {
    this.forget = [];
    this.relabel = [];
  }
}

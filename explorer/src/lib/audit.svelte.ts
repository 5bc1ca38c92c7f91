/** The audit as a queue of decisions. */

import * as api from "./api";
import { app } from "./app.svelte";
import { TaskQueue } from "./decisions.svelte";
import * as format from "./format";
import type { Audit, EntryEvidence, Id, Label, Suspect } from "./types";

export type DecisionKind = "accepted" | "kept" | "relabeled" | "forgotten" | "skipped";

export interface MadeDecision {
  entry: Suspect;
  kind: DecisionKind;
  label: Label | null;
  isEdit: boolean;
}

const LISTED = 200;
const REFRESH_MS = 250;

export class AuditQueue {
  audit = $state.raw<Audit | null>(null);
  problem = $state.raw<unknown>(null);
  handled = $state.raw<ReadonlySet<Id>>(new Set());
  made = $state.raw<MadeDecision[]>([]);
  chosen = $state<Id | null>(null);
  evidence = $state.raw<EntryEvidence | null>(null);
  evidenceProblem = $state.raw<unknown>(null);
  track = $state.raw<{ x: number; y: number }[]>([]);
  readonly tasks = new TaskQueue();
  #timer = 0;
  #cache = new Map<Id, Promise<EntryEvidence>>();

  get waiting(): Suspect[] {
    return (this.audit?.entries ?? []).filter((one) => !this.handled.has(one.id));
  }

  get current(): Suspect | null {
    const waiting = this.waiting;
    return waiting.find((one) => one.id === this.chosen) ?? waiting[0] ?? null;
  }

  async load(): Promise<void> {
    try {
      const found = await api.audit(LISTED);
      if (this.tasks.waiting > 0) return; // an edit on its way will ask again
      this.audit = found;
      this.problem = null;
      this.#cache.clear();
      if (found.expected_wrong !== null) this.#note(found.expected_wrong);
    } catch (error) {
      this.problem = error;
    }
  }

  #note(expected: number): void {
    const x = this.made.filter((one) => one.kind !== "skipped").length;
    this.track = [...this.track.filter((one) => one.x < x), { x, y: expected }];
  }

  #refreshSoon(): void {
    window.clearTimeout(this.#timer);
    this.#timer = window.setTimeout(() => {
      if (this.tasks.waiting === 0) void this.load();
    }, REFRESH_MS);
  }

  #evidenceOf(id: Id): Promise<EntryEvidence> {
    const known = this.#cache.get(id) ?? api.entryEvidence(id);
    this.#cache.set(id, known);
    known.catch(() => this.#cache.delete(id));
    return known;
  }

  async showEvidence(id: Id): Promise<void> {
    this.evidenceProblem = null;
    try {
      const found = await this.#evidenceOf(id);
      if (this.current?.id === id) this.evidence = found;
      const next = this.waiting.find((one) => one.id !== id);
      if (next && this.tasks.waiting === 0) await this.#evidenceOf(next.id);
    } catch (error) {
      if (this.current?.id === id) this.evidenceProblem = error;
    }
  }

  /** Goes to an entry before or after the current one. */
  move(step: number): void {
    const waiting = this.waiting;
    const at = waiting.findIndex((one) => one.id === this.current?.id);
    this.chosen = waiting[Math.max(0, Math.min(waiting.length - 1, at + step))]?.id ?? null;
  }

  #mark(id: Id, isHandled: boolean): void {
    const next = new Set(this.handled);
    if (isHandled) next.add(id);
    else next.delete(id);
    this.handled = next;
  }

  decide(kind: DecisionKind, label: Label | null = null): void {
    const entry = this.current;
    if (!entry) return;
    const isEdit = kind !== "skipped";
    if (isEdit && !app.canEdit) return app.say(app.whyNoEdits);
    this.#next(entry.id);
    const made = { entry, kind, label, isEdit };
    this.made = [...this.made, made];
    this.#mark(entry.id, true);
    app.announce(`${sentence(made)} ${this.current ? `Next: #${this.current.id}.` : "The queue is empty."}`);
    if (!isEdit) return;
    this.tasks.add(
      async () => {
        await this.#run(made);
        this.#refreshSoon();
      },
      () => this.#takeBack(made),
    );
  }

  #next(id: Id): void {
    const waiting = this.waiting;
    const at = waiting.findIndex((one) => one.id === id);
    this.chosen = (waiting[at + 1] ?? waiting[at - 1])?.id ?? null;
  }

  #takeBack(made: MadeDecision): void {
    this.made = this.made.filter((one) => one !== made);
    this.#mark(made.entry.id, false);
    this.chosen = made.entry.id;
  }

  async #run(made: MadeDecision): Promise<void> {
    const { entry, kind, label } = made;
    const author = { by: app.by };
    if (kind === "forgotten") await app.edit(() => api.batch({ forget: [entry.id] }, author), sentence(made));
    else if (kind === "kept") await app.edit(() => api.keep([entry.id], author), sentence(made));
    else if (label !== null) {
      await app.edit(() => api.batch({ relabel: [{ id: entry.id, label }], new_classes: true }, author), sentence(made));
    }
  }

  /** Takes the last decision back: a skip here, an edit by undo. */
  undo(): void {
    const made = this.made.at(-1);
    if (!made) return app.say("There is no decision of this session to undo. The history can undo earlier edits.");
    this.made = this.made.slice(0, -1);
    this.tasks.add(
      async () => {
        if (made.isEdit) await app.edit(() => api.undo({ by: app.by, expected_version: app.version }), `Undone: ${sentence(made)}`);
        this.#mark(made.entry.id, false);
        this.chosen = made.entry.id;
        this.#refreshSoon();
      },
      () => (this.made = [...this.made, made]),
    );
  }

  /** Notes that several suggestions were accepted by one edit. */
  acceptedMany(entries: Suspect[]): void {
    const next = new Set(this.handled);
    for (const one of entries) next.add(one.id);
    this.handled = next;
    this.made = [...this.made, ...entries.slice(-1).map((entry) => ({ entry, kind: "accepted" as const, label: entry.suggested, isEdit: true }))];
    this.chosen = null;
    this.#refreshSoon();
  }

  /** Forgets what was decided about entries, after edits from elsewhere. */
  restart(): void {
    this.handled = new Set(this.made.filter((one) => one.kind === "skipped").map((one) => one.entry.id));
    void this.load();
  }
}

export function sentence(made: MadeDecision): string {
  const id = `#${made.entry.id}`;
  const label = format.label(made.label);
  return {
    accepted: `Relabeled ${id} to ${label}.`,
    relabeled: `Relabeled ${id} to ${label}.`,
    kept: `Kept ${format.label(made.entry.label)} for ${id}.`,
    forgotten: `Forgot ${id}.`,
    skipped: `Skipped ${id}.`,
  }[made.kind];
}

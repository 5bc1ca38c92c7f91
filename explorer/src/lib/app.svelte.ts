/** What all screens share: the model, who edits, uploaded files, messages, and the way edits are made. */

import * as api from "./api";
import { ApiError } from "./api";
import type { Edited, Label, Model, Position, Row, RowFile } from "./types";

export type Screen = "ask" | "fix" | "next" | "errors" | "map" | "history";
export type Theme = "auto" | "light" | "dark";

const POLL_MS = 2000;
const TOAST_MS = 9000;
const AUTHOR_KEY = "attnknn-author";
const THEME_KEY = "attnknn-theme";

export interface Toast {
  text: string;
  kind: "done" | "error";
  undoOf: number | null;
}

export interface Question {
  row: Row;
  label: Label;
  position: Position | null;
}

class AppState {
  model = $state<Model | null>(null);
  problem = $state<ApiError | null>(null);
  needsToken = $state(false);
  version = $state(-1);
  newerVersion = $state<number | null>(null);
  isUnreachable = $state(false);
  screen = $state<Screen>("ask");
  author = $state(localStorage.getItem(AUTHOR_KEY) ?? "");
  theme = $state<Theme>((localStorage.getItem(THEME_KEY) as Theme | null) ?? "auto");
  files = $state<RowFile[]>([]);
  toast = $state<Toast | null>(null);
  announcement = $state("");
  questions = $state<Question[]>([]);
  #toastTimer = 0;
  #editsRunning = 0;

  get canEdit(): boolean {
    return this.model !== null && this.model.is_editable && this.model.role !== "reader";
  }

  get isAdmin(): boolean {
    return this.model?.role === "admin";
  }

  get whyNoEdits(): string {
    if (this.canEdit) return "";
    if (this.model?.role === "reader") return "Edits need the role editor.";
    return "The server serves this model for reading only.";
  }

  get labels(): Label[] {
    return this.model?.classes.map((one) => one.label) ?? [];
  }

  /** The name for the log, and the version that the reader has seen. */
  get by(): string | undefined {
    return this.author.trim() || undefined;
  }

  setAuthor(name: string): void {
    this.author = name;
    localStorage.setItem(AUTHOR_KEY, name);
  }

  setTheme(theme: Theme): void {
    this.theme = theme;
    localStorage.setItem(THEME_KEY, theme);
    if (theme === "auto") delete document.documentElement.dataset["theme"];
    else document.documentElement.dataset["theme"] = theme;
  }

  async open(): Promise<void> {
    try {
      this.model = await api.model();
      this.version = this.model.version;
      this.newerVersion = null;
      this.problem = null;
      this.needsToken = false;
      document.title = `${this.model.name} · AttnKNN`;
      this.files = (await api.files()).files;
    } catch (error) {
      this.#refused(error);
    }
  }

  /** Watches for edits of other people. */
  watch(): () => void {
    const timer = window.setInterval(() => void this.#poll(), POLL_MS);
    return () => window.clearInterval(timer);
  }

  async #poll(): Promise<void> {
    if (!this.model || this.needsToken || document.hidden || this.#editsRunning > 0) return;
    try {
      const { version } = await api.version();
      this.isUnreachable = false;
      if (this.#editsRunning === 0 && version !== this.version) this.newerVersion = version;
    } catch (error) {
      this.isUnreachable = error instanceof ApiError && error.status === 0;
      if (error instanceof ApiError && error.status === 401) this.#refused(error);
    }
  }

  #refused(error: unknown): void {
    if (error instanceof ApiError && error.status === 401) {
      this.needsToken = true;
      this.problem = api.storedToken() ? error : null;
    } else {
      this.problem = asApiError(error);
    }
  }

  /** Takes over what another person changed. */
  async reload(): Promise<void> {
    await this.open();
    this.announce("The page shows the newest version of the model.");
  }

  /** Runs one edit, refreshes what the model is, and offers to undo it. */
  async edit(run: () => Promise<Edited>, done?: string): Promise<Edited> {
    this.#editsRunning += 1;
    try {
      const edited = await run();
      this.version = edited.version;
      this.newerVersion = null;
      this.say(done ?? edited.message, edited.is_changed === false ? null : edited.version);
      void this.#refreshModel();
      return edited;
    } finally {
      this.#editsRunning -= 1;
    }
  }

  async #refreshModel(): Promise<void> {
    try {
      const model = await api.model();
      if (model.version >= this.version) this.model = model;
    } catch {
      // The next poll reports an unreachable server.
    }
  }

  async undo(): Promise<Edited | null> {
    try {
      return await this.edit(() => api.undo({ by: this.by, expected_version: this.version }));
    } catch (error) {
      this.fail(error);
      return null;
    }
  }

  say(text: string, undoOf: number | null = null): void {
    this.#show({ text, kind: "done", undoOf });
    this.announce(text);
  }

  fail(error: unknown): void {
    const problem = asApiError(error);
    if (problem.status === 401) this.#refused(problem);
    this.#show({ text: problem.message, kind: "error", undoOf: null });
    this.announce(`Error: ${problem.message}`);
  }

  #show(toast: Toast): void {
    this.toast = toast;
    window.clearTimeout(this.#toastTimer);
    this.#toastTimer = window.setTimeout(() => (this.toast = null), toast.kind === "error" ? 2 * TOAST_MS : TOAST_MS);
  }

  closeToast(): void {
    this.toast = null;
  }

  announce(text: string): void {
    this.announcement = text;
  }

  remember(question: Question): void {
    this.questions = [question, ...this.questions].slice(0, 5);
  }

  async refreshFiles(): Promise<void> {
    this.files = (await api.files()).files;
  }
}

export function asApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  return new ApiError(-1, "PageError", error instanceof Error ? error.message : String(error));
}

export const app = new AppState();

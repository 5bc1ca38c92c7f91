/** What the server's JSON routes accept and answer. */

export type Label = string | number | boolean;
export type Id = number | string;
export type Cell = string | number | boolean | null;
export type TableRow = Record<string, Cell>;
export type Row = TableRow | string | { image: string } | number[];
export type Role = "reader" | "editor" | "admin";

export interface Column {
  name: string;
  kind: "number" | "category" | "date" | "text";
  values?: Cell[] | null;
  low?: number | null;
  median?: number | null;
  high?: number | null;
}

export interface Model {
  name: string;
  version: number;
  kind: "table" | "texts" | "images" | "vectors";
  n_entries: number;
  n_features: number | null;
  classes: { label: Label; count: number }[];
  columns: Column[];
  encoder: string;
  attention: string;
  n_neighbors: number;
  label_noise: number | null;
  label_noise_se: number | null;
  fit_report: string;
  has_subjects: boolean;
  has_payloads: boolean;
  id_kind: "int" | "str";
  is_editable: boolean;
  is_durable: boolean;
  role: Role;
  by: string;
}

export interface Neighbor {
  id: Id;
  label: Label;
  weight: number;
  distance: number | null;
  payload: unknown;
  image: boolean;
  p_wrong: number | null;
}

export interface Evidence {
  label: Label;
  probability: number;
  probabilities: number[];
  shares: number[];
  prior: { weight: number };
  neighbors: Neighbor[];
  others: { count: number; weight: number };
  remark: string;
}

export interface Decision {
  label: Label | null;
  is_answered: boolean;
  reason: string | null;
  confidence: number;
  novelty_p: number | null;
}

export interface Position {
  x: number;
  y: number;
}

export interface Answer {
  evidence: Evidence;
  set: Label[];
  decision: Decision;
  position: Position | null;
}

export interface AskAnswer {
  version: number;
  classes: Label[];
  answers: Answer[];
}

export interface Guess {
  label: Label;
  confidence: number;
  probabilities: number[];
}

export interface WhatIf {
  version: number;
  classes: Label[];
  sentence: string;
  n_rows: number;
  n_changed: number;
  rows: { row: number; before: Guess; after: Guess; changed: boolean }[];
}

export interface Entry {
  id: Id;
  label: Label;
  group: number | null;
  sample_weight: number;
  subject: string | null;
  payload: unknown;
  image: boolean;
  added_by_edit: number | null;
}

export interface EntryEvidence {
  version: number;
  classes: Label[];
  entry: Entry;
  evidence: Evidence;
}

export interface Suspect {
  id: Id;
  label: Label;
  suggested: Label;
  p_wrong: number | null;
  score: number;
  p_suggested: number;
  value: number;
  payload: unknown;
  image: boolean;
  contradicted_by: Id[];
  duplicates: Id[];
  conflict: boolean;
}

export interface Audit {
  version: number;
  expected_wrong: number | null;
  label_noise: number | null;
  standard_error: number | null;
  no_probabilities: string;
  n_kept: number;
  gives_probabilities: boolean;
  n_entries: number;
  entries: Suspect[];
}

export interface Edited {
  version: number;
  message: string;
  n_entries: number;
  is_changed: boolean;
  edit: number | null;
  ids?: Id[];
}

export interface Relabeling {
  id: Id;
  label: Label;
}

export interface LogLine {
  edit: number;
  at: string;
  by: string | null;
  message: string;
  kind: "create" | "edit" | "undo" | "rollback" | "erase" | "recover";
  can_undo: boolean;
}

export interface Change {
  id: Id;
  before: { label: Label; sample_weight: number | null } | null;
  after: { label: Label; sample_weight: number | null } | null;
  payload: unknown;
}

export interface Snapshot {
  name: string;
  edit: number;
  at: string;
  by: string | null;
}

export interface RowFile {
  id: string;
  name: string;
  n_rows: number;
  columns: string[];
  label_column: string | null;
  has_labels: boolean;
  expires_in: number;
  preview: Row[];
}

export interface Score {
  value: number;
  low: number | null;
  high: number | null;
}

export interface Evaluation {
  version: number;
  n_rows: number;
  scores: Record<string, Score>;
  classes: Label[];
  confusion: number[][];
  reliability: { low: number; high: number; count: number; confidence: number | null; accuracy: number | null }[];
  risk_coverage: { coverage: number; risk: number; threshold: number }[];
}

export interface EvaluatedRow {
  row: number;
  content: Row;
  label: Label;
  predicted: Label;
  confidence: number;
}

export interface Suggestion {
  row: number;
  content: Row;
  score: number;
  reasons: { text: string; uncertainty: number; novelty: number; density: number };
  prediction: Guess;
}

export interface Suggestions {
  version: number;
  classes: Label[];
  suggestions: Suggestion[];
  expected_accuracy: number | null;
}

export type MapColor = "class" | "error" | "novelty" | "age";

export interface Layout {
  version: number;
  n: number;
  ids: Id[];
  x: number[];
  y: number[];
  color: { kind: "class" | "number"; values: (number | null)[]; classes?: Label[] | null };
}

export interface Receipt {
  version: number;
  receipt: Record<string, unknown>;
  text: string;
}

/** Rows given in the request itself, or rows of an uploaded file. */
export type Source = { rows: Row[] } | { file: string; rows_of_file?: number[] };

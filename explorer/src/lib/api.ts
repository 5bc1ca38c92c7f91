/** The server's JSON routes as functions; errors arrive as `ApiError`. */

import type * as T from "./types";

const TOKEN_KEY = "attnknn-token";

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly type: string,
    message: string,
  ) {
    super(message);
  }
}

export function storedToken(): string {
  return sessionStorage.getItem(TOKEN_KEY) ?? "";
}

export function storeToken(token: string): void {
  if (token) sessionStorage.setItem(TOKEN_KEY, token);
  else sessionStorage.removeItem(TOKEN_KEY);
}

async function send(method: string, path: string, body?: BodyInit, type?: string): Promise<Response> {
  const headers: Record<string, string> = {};
  const token = storedToken();
  if (token) headers["Authorization"] = `Bearer ${token}`;
  if (type) headers["Content-Type"] = type;
  let response: Response;
  try {
    response = await fetch(`api/${path}`, { method, headers, body, credentials: "omit" });
  } catch {
    throw new ApiError(0, "Unreachable", "The server does not answer. Is `attnknn serve` still running? Nothing was changed here.");
  }
  if (!response.ok) throw await problem(response);
  return response;
}

async function problem(response: Response): Promise<ApiError> {
  try {
    const { error } = await response.json();
    if (typeof error.message === "string") return new ApiError(response.status, String(error.type), error.message);
  } catch {
    // Not one of our errors: say what is known.
  }
  const message = `The server answered ${response.status} ${response.statusText}.`;
  return new ApiError(response.status, "HttpError", message);
}

async function get<A>(path: string): Promise<A> {
  return (await send("GET", path)).json() as Promise<A>;
}

async function post<A>(path: string, body: object): Promise<A> {
  const response = await send("POST", path, JSON.stringify(body), "application/json");
  return response.json() as Promise<A>;
}

const query = (values: Record<string, string | number | undefined>): string => {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== "");
  return new URLSearchParams(given.map(([key, value]) => [key, String(value)])).toString();
};

const entryPath = (id: T.Id): string => `entries/${encodeURIComponent(String(id))}`;

export const model = () => get<T.Model>("model");
export const version = () => get<{ version: number; n_entries: number }>("version");

export interface AskOptions {
  n_neighbors: number;
  coverage: number;
  allow_empty: boolean;
  max_risk: number | null;
  novelty_level: number | null;
}

export const ask = (rows: T.Row[], options: AskOptions) => post<T.AskAnswer>("ask", { rows, ...options });
export const predict = (source: T.Source) =>
  post<{ version: number; classes: T.Label[]; predictions: T.Guess[] }>("predict", { ...source });
export const explain = (source: T.Source, n_neighbors: number) =>
  post<{ version: number; classes: T.Label[]; evidence: T.Evidence[] }>("explain", { ...source, n_neighbors });

export interface Edits {
  forget?: T.Id[];
  relabel?: T.Relabeling[];
  add?: { row: T.Row; label: T.Label }[];
}

export const whatIf = (edits: Edits, source: T.Source, limit = 50) => post<T.WhatIf>("what-if", { ...edits, ...source, limit });

export const lookup = (ids: T.Id[]) => post<{ version: number; entries: T.Entry[] }>("entries/lookup", { ids });
export const entryEvidence = (id: T.Id) => get<T.EntryEvidence>(`${entryPath(id)}/evidence`);
export const entryImage = async (id: T.Id): Promise<Blob> => (await send("GET", `${entryPath(id)}/image`)).blob();

export const audit = (limit: number, offset = 0) => get<T.Audit>(`audit?${query({ limit, offset })}`);
export const auditExport = async (format: "csv" | "label-studio"): Promise<Blob> =>
  (await send("GET", `audit/export?${query({ format })}`)).blob();

export interface Author {
  by?: string;
  message?: string;
  expected_version?: number;
}

export const batch = (
  edits: { relabel?: T.Relabeling[]; forget?: T.Id[]; keep?: T.Id[]; new_classes?: boolean },
  author: Author,
) => post<T.Edited>("edits/batch", { ...edits, ...author });
export const keep = (ids: T.Id[], author: Author) => post<T.Edited>("edits/keep", { ids, ...author });
export const add = (source: T.Source, labels: T.Label[] | null, author: Author) =>
  post<T.Edited>("edits/add", { ...source, labels, ...author });
export const undo = (author: Author) => post<T.Edited>("edits/undo", author);
export const rollback = (to: string | number, author: Author) => post<T.Edited>("edits/rollback", { to, ...author });
export const refit = (author: Author) => post<T.Edited>("edits/refit", author);
export const erase = (subject: string, by?: string) => post<T.Receipt>("erase", { subject, by });

export const log = (limit: number, offset = 0) =>
  get<{ version: number; total: number; edits: T.LogLine[] }>(`log?${query({ limit, offset })}`);
export const changes = (edit: number) => get<{ edit: number; total: number; changes: T.Change[] }>(`log/${edit}`);
export const snapshots = () => get<{ snapshots: T.Snapshot[] }>("snapshots");
export const takeSnapshot = (name: string, by?: string) => post<unknown>("snapshots", { name, by });

export async function upload(file: File, labelColumn?: string): Promise<T.RowFile> {
  const path = `files?${query({ name: file.name, label_column: labelColumn })}`;
  const response = await send("POST", path, file, "application/octet-stream");
  return response.json() as Promise<T.RowFile>;
}

export const files = () => get<{ files: T.RowFile[] }>("files");
export const dropFile = (id: string) => send("DELETE", `files/${encodeURIComponent(id)}`);
export const fileRows = (id: string, offset: number, limit: number) =>
  get<{ total: number; rows: T.Row[]; labels: T.Label[] | null }>(`files/${encodeURIComponent(id)}/rows?${query({ offset, limit })}`);

export const evaluate = (file: string) => post<T.Evaluation>("evaluate", { file });

export interface EvaluatedQuery {
  true?: T.Label;
  predicted?: T.Label;
  min_confidence?: number;
  max_confidence?: number;
}

export const evaluatedRows = (file: string, which: EvaluatedQuery, limit: number) =>
  post<{ version: number; total: number; rows: T.EvaluatedRow[] }>("evaluate/rows", { file, ...which, limit, offset: 0 });

export const suggest = (file: string, n: number, strategy: string, labeled: number[]) =>
  post<T.Suggestions>("suggest", { file, n, strategy, labeled });

/** The layout of all entries, or how far its computation is. */
export async function layout(color: T.MapColor): Promise<T.Layout | { progress: number }> {
  const response = await send("GET", `map?${query({ color })}`);
  return response.json() as Promise<T.Layout | { progress: number }>;
}

export const place = (rows: T.Row[]) => post<{ positions?: T.Position[] }>("map/place", { rows });

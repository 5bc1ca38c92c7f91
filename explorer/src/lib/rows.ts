/** From what a person types or pastes to a row that the model reads. */

import type { Cell, Column, Label, Row, TableRow } from "./types";

export class RowError extends Error {}

/** The value of a form field; an empty field is a missing value. */
export function cellOf(column: Column, text: string): Cell {
  const trimmed = text.trim();
  if (trimmed === "") return null;
  if (column.kind === "number") {
    const value = Number(trimmed.replace("−", "-"));
    if (!Number.isFinite(value)) throw new RowError(`${column.name} must be a number, received “${trimmed}”.`);
    return value;
  }
  const known = column.values?.find((value) => String(value) === trimmed);
  return known ?? (column.kind === "text" ? text : trimmed);
}

/** The fields of one record of CSV or TSV; quotes may hold delimiters. */
function splitLine(line: string, delimiter: string): string[] {
  const fields: string[] = [];
  let field = "";
  let isQuoted = false;
  for (let i = 0; i < line.length; i += 1) {
    const char = line.charAt(i);
    if (isQuoted && char === '"' && line.charAt(i + 1) === '"') {
      field += '"';
      i += 1;
    } else if (char === '"') {
      isQuoted = !isQuoted;
    } else if (char === delimiter && !isQuoted) {
      fields.push(field);
      field = "";
    } else {
      field += char;
    }
  }
  return [...fields, field].map((one) => one.trim());
}

function valuesByName(names: string[], values: string[]): Record<string, string> {
  return Object.fromEntries(names.map((name, i) => [name, values[i] ?? ""]));
}

/** Texts of form fields from a pasted JSON object, a CSV or TSV record, with or without a header. */
export function fieldsOf(pasted: string, columns: Column[]): Record<string, string> {
  const names = columns.map((column) => column.name);
  const text = pasted.trim();
  if (text.startsWith("{")) {
    const record = JSON.parse(text) as Record<string, unknown>;
    const strange = Object.keys(record).filter((name) => !names.includes(name));
    if (strange.length === Object.keys(record).length) {
      throw new RowError(`None of the pasted names is a column of the model: ${strange.slice(0, 5).join(", ")}.`);
    }
    return Object.fromEntries(names.map((name) => [name, record[name] === null || record[name] === undefined ? "" : String(record[name])]));
  }
  const lines = text.split(/\r?\n/).filter((line) => line.trim() !== "");
  const first = lines[0] ?? "";
  const delimiter = ["\t", ";", ","].find((one) => first.includes(one)) ?? ",";
  const header = splitLine(first, delimiter);
  if (lines.length > 1 && header.some((name) => names.includes(name))) {
    return { ...valuesByName(names, []), ...valuesByName(header, splitLine(lines[1] ?? "", delimiter)) };
  }
  if (header.length !== names.length) {
    throw new RowError(`A row has ${names.length} values, received ${header.length}. Paste a line with all of them, or two lines with the column names first.`);
  }
  return valuesByName(names, header);
}

export function tableRow(columns: Column[], fields: Record<string, string>): TableRow {
  return Object.fromEntries(columns.map((column) => [column.name, cellOf(column, fields[column.name] ?? "")]));
}

export function vectorOf(text: string, nFeatures: number | null): number[] {
  const parts = text.replace(/[[\]]/g, " ").split(/[\s,;]+/).filter((part) => part !== "");
  const values = parts.map(Number);
  const wrong = parts.find((_, i) => !Number.isFinite(values[i]));
  if (wrong !== undefined) throw new RowError(`A vector holds numbers only, received “${wrong}”.`);
  if (nFeatures !== null && values.length !== nFeatures) {
    throw new RowError(`The model reads ${nFeatures} numbers, received ${values.length}.`);
  }
  return values;
}

export function imageOf(file: File): Promise<{ image: string }> {
  if (!["image/png", "image/jpeg"].includes(file.type)) {
    return Promise.reject(new RowError(`A picture must be a PNG or JPEG file, received ${file.name}.`));
  }
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve({ image: String(reader.result).replace(/^data:[^,]*,/, "") });
    reader.onerror = () => reject(new RowError(`${file.name} cannot be read.`));
    reader.readAsDataURL(file);
  });
}

export const imageSource = (row: { image: string }): string =>
  `data:${row.image.startsWith("/9j/") ? "image/jpeg" : "image/png"};base64,${row.image}`;

/** Fields with typical values: medians and most frequent values. */
export function typicalFields(columns: Column[]): Record<string, string> {
  const typical = (column: Column): string => {
    const value = column.kind === "number" ? column.median : column.values?.[0];
    return value === null || value === undefined ? "" : String(typeof value === "number" ? Number(value.toPrecision(5)) : value);
  };
  return Object.fromEntries(columns.map((column) => [column.name, typical(column)]));
}

/** Fields of a row that is known already. */
export function fieldsOfRow(columns: Column[], row: Row): Record<string, string> {
  const cells = typeof row === "object" && !Array.isArray(row) ? (row as TableRow) : {};
  return Object.fromEntries(columns.map(({ name }) => [name, cells[name] === null || cells[name] === undefined ? "" : String(cells[name])]));
}

/** A typed label with the type of the labels that the model has. */
export function labelOf(text: string, known: Label[]): Label {
  const same = known.find((one) => String(one) === text);
  if (same !== undefined) return same;
  const areNumbers = known.length > 0 && known.every((one) => typeof one === "number");
  if (!areNumbers) return text;
  const value = Number(text);
  if (text.trim() === "" || !Number.isFinite(value)) throw new RowError(`Labels of this model are numbers, received “${text}”.`);
  return value;
}

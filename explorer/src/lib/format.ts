/** Numbers, labels, payloads and rows as text. */

import type { Label } from "./types";

const COUNT = new Intl.NumberFormat("en-US");
const MINUTES = 60;
const HOURS = 24;

export const count = (n: number): string => COUNT.format(n);

export const plural = (n: number, one: string, many = `${one}s`): string => `${count(n)} ${n === 1 ? one : many}`;

/** A share as a percentage; small and large ones keep a digit that distinguishes them from 0 and 1. */
export function percent(share: number | null | undefined): string {
  if (share === null || share === undefined) return "–";
  const value = share * 100;
  if (value > 0 && value < 0.1) return "<0.1 %";
  if (value < 100 && value > 99.9) return ">99.9 %";
  return `${value.toFixed(Math.abs(value) < 9.95 || value > 90 ? 1 : 0)} %`;
}

export function decimal(value: number | null | undefined, digits = 3): string {
  if (value === null || value === undefined) return "–";
  if (Math.abs(value) >= 10_000) return COUNT.format(Math.round(value));
  return value.toFixed(digits).replace("-", "−");
}

export const signed = (value: number): string => `${value < 0 ? "−" : "+"}${percent(Math.abs(value))}`;

export function label(value: Label | null | undefined): string {
  if (value === null || value === undefined) return "none";
  const text = String(value);
  return text.trim() === "" ? `“${text}”` : text;
}

/** A key that tells the number 1 from the text "1". */
export const labelKey = (value: Label): string => `${typeof value}:${String(value)}`;

export function cell(value: unknown): string {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number" && !Number.isInteger(value)) return String(Number(value.toPrecision(5))).replace("-", "−");
  if (typeof value === "object") return JSON.stringify(value);
  return String(value);
}

/** A moment in the reader's own time zone; the day is left out if it is today. */
export function moment(at: string): string {
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return at;
  const time = date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  const isToday = date.toDateString() === new Date().toDateString();
  return isToday ? `today ${time}` : `${date.toLocaleDateString([], { day: "numeric", month: "short", year: "numeric" })} ${time}`;
}

export function ago(at: string): string {
  const minutes = Math.round((Date.now() - new Date(at).getTime()) / 60_000);
  if (Number.isNaN(minutes)) return "";
  if (minutes < 1) return "just now";
  if (minutes < MINUTES) return `${plural(minutes, "minute")} ago`;
  const hours = Math.round(minutes / MINUTES);
  return hours < HOURS ? `${plural(hours, "hour")} ago` : `${plural(Math.round(hours / HOURS), "day")} ago`;
}

/** Probabilities of the largest classes, in falling order. */
export function ranked(classes: Label[], values: number[]): { label: Label; value: number }[] {
  return classes.map((name, i) => ({ label: name, value: values[i] ?? 0 })).sort((a, b) => b.value - a.value);
}

/** Which points lie where on the map. */

import type { View } from "./points";

export interface Place {
  x: number;
  y: number;
}

/** The view that shows all points. */
export function wholeView(places: Float32Array, width: number, height: number): View {
  let [left, right, low, high] = [Infinity, -Infinity, Infinity, -Infinity];
  for (let i = 0; i < places.length; i += 2) {
    left = Math.min(left, places[i] ?? 0);
    right = Math.max(right, places[i] ?? 0);
    low = Math.min(low, places[i + 1] ?? 0);
    high = Math.max(high, places[i + 1] ?? 0);
  }
  if (places.length === 0) return { x: 0, y: 0, scale: Math.min(width, height) / 2.2 };
  const scale = 0.92 * Math.min(width / Math.max(right - left, 1e-6), height / Math.max(high - low, 1e-6));
  return { x: (left + right) / 2, y: (low + high) / 2, scale: Math.min(scale, 1e6) };
}

/** Positions of the points inside a polygon, by the even-odd rule. */
export function insidePolygon(places: Float32Array, polygon: Place[]): number[] {
  const xs = polygon.map((one) => one.x);
  const ys = polygon.map((one) => one.y);
  const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const found: number[] = [];
  for (let i = 0; i < places.length / 2; i += 1) {
    const x = places[2 * i] ?? 0;
    const y = places[2 * i + 1] ?? 0;
    if (x < left || x > right || y < low || y > high) continue;
    if (isInside(x, y, xs, ys)) found.push(i);
  }
  return found;
}

function isInside(x: number, y: number, xs: number[], ys: number[]): boolean {
  let isOdd = false;
  for (let i = 0, j = xs.length - 1; i < xs.length; j = i, i += 1) {
    const [xi, yi, xj, yj] = [xs[i] ?? 0, ys[i] ?? 0, xs[j] ?? 0, ys[j] ?? 0];
    if (yi > y !== yj > y && x < ((xj - xi) * (y - yi)) / (yj - yi) + xi) isOdd = !isOdd;
  }
  return isOdd;
}

/** The point nearest to a place, if one is within `reach`; -1 otherwise. */
export function nearest(places: Float32Array, { x, y }: Place, reach: number): number {
  let best = -1;
  let least = reach * reach;
  for (let i = 0; i < places.length / 2; i += 1) {
    const dx = (places[2 * i] ?? 0) - x;
    const dy = (places[2 * i + 1] ?? 0) - y;
    const square = dx * dx + dy * dy;
    if (square < least) [least, best] = [square, i];
  }
  return best;
}

/** Colors of points, readable on light and dark ground. */

export type Rgb = [number, number, number];

const CLASSES: Rgb[] = [
  [31, 119, 180],
  [230, 120, 20],
  [44, 150, 70],
  [205, 60, 65],
  [140, 100, 190],
  [150, 95, 75],
  [215, 100, 175],
  [165, 165, 40],
  [20, 170, 190],
  [95, 110, 215],
];
export const OTHER: Rgb = [140, 148, 160];
export const N_COLORS = CLASSES.length;

const RAMP: Rgb[] = [
  [72, 90, 170],
  [40, 135, 165],
  [60, 165, 115],
  [175, 175, 50],
  [235, 120, 35],
  [215, 40, 60],
];

/** The color of each class: the most frequent ones have their own. */
export function classColors(counts: number[]): Rgb[] {
  const order = counts.map((_, i) => i).sort((a, b) => (counts[b] ?? 0) - (counts[a] ?? 0));
  const own = new Set(order.slice(0, N_COLORS));
  let next = 0;
  return counts.map((_, i) => {
    if (!own.has(i)) return OTHER;
    const color = CLASSES[next] ?? OTHER;
    next += 1;
    return color;
  });
}

/** A color for a number between 0 and 1. */
export function rampColor(share: number): Rgb {
  const at = Math.max(0, Math.min(1, share)) * (RAMP.length - 1);
  const low = RAMP[Math.floor(at)] ?? OTHER;
  const high = RAMP[Math.ceil(at)] ?? OTHER;
  const part = at - Math.floor(at);
  return [0, 1, 2].map((i) => Math.round((low[i] ?? 0) * (1 - part) + (high[i] ?? 0) * part)) as Rgb;
}

export const css = ([red, green, blue]: Rgb): string => `rgb(${red} ${green} ${blue})`;

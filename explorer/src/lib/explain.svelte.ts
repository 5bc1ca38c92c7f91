/** The explanation of a number, shown while it is hovered, focused or tapped. */

import type { Action } from "svelte/action";

export const shown = $state<{ text: string; anchor: DOMRect | null }>({ text: "", anchor: null });

export const TOOLTIP_ID = "explanation";

let owner: HTMLElement | null = null;

function hide(node: HTMLElement): void {
  if (owner !== node) return;
  owner = null;
  shown.anchor = null;
  node.removeAttribute("aria-describedby");
}

/** Hides whatever is shown, as Escape does. */
export function hideExplanation(): void {
  if (owner) hide(owner);
}

export const explain: Action<HTMLElement, string> = (node, text) => {
  let current = text;
  const show = (): void => {
    if (!current) return;
    if (owner && owner !== node) hide(owner);
    owner = node;
    shown.text = current;
    shown.anchor = node.getBoundingClientRect();
    node.setAttribute("aria-describedby", TOOLTIP_ID);
  };
  const leave = (): void => {
    if (document.activeElement !== node) hide(node);
  };
  const blur = (): void => hide(node);
  node.addEventListener("mouseenter", show);
  node.addEventListener("mouseleave", leave);
  node.addEventListener("focus", show);
  node.addEventListener("blur", blur);
  return {
    update(next) {
      current = next;
      if (owner === node) shown.text = next;
    },
    destroy() {
      hide(node);
      node.removeEventListener("mouseenter", show);
      node.removeEventListener("mouseleave", leave);
      node.removeEventListener("focus", show);
      node.removeEventListener("blur", blur);
    },
  };
};

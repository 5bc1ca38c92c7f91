/** Keys of the open screen; the help lists what is registered, so it cannot differ from what works. */

export interface Shortcut {
  keys: string;
  does: string;
  run: (event: KeyboardEvent) => void;
  /** Shown to the reader in place of `keys`. */
  shown?: string;
}

export interface ShortcutGroup {
  title: string;
  shortcuts: Shortcut[];
}

/** Not reactive: the clean-up of an effect would see the list as it was before the effects that ran with it. */
let groups: ShortcutGroup[] = [];

/** The groups that are registered now, the newest one last. */
export const registered = (): readonly ShortcutGroup[] => groups;

/** Registers keys until the returned function is called. */
export function register(title: string, shortcuts: Shortcut[]): () => void {
  const group = { title, shortcuts };
  groups.push(group);
  return () => {
    groups = groups.filter((one) => one !== group);
  };
}

const isTyping = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement &&
  (target.isContentEditable || target.matches("textarea, select, input:not([type=checkbox]):not([type=radio]):not([type=file]):not([type=button])"));

const presses = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && target.closest("button, a, summary, [role=button], [role=slider], input") !== null;

let prefix = "";
let prefixTimer = 0;

/** Calls the shortcut of a key, unless the key belongs to a field, a button or an open dialog. */
export function handleKey(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  if (document.querySelector("dialog[open]")) return;
  if ((event.key === "Enter" || event.key === " ") && presses(event.target)) return;
  if (event.key.startsWith("Arrow") && event.target instanceof HTMLElement && event.target.matches("[role=slider], [role=application]")) return;
  const pressed = prefix + event.key;
  window.clearTimeout(prefixTimer);
  prefix = "";
  const all = groups.flatMap((group) => group.shortcuts);
  const found = all.findLast((shortcut) => shortcut.keys.split(" ").includes(pressed));
  if (found) {
    event.preventDefault();
    found.run(event);
  } else if (all.some((shortcut) => shortcut.keys.split(" ").some((keys) => keys.length > 1 && keys.startsWith(event.key) && keys.length === 2))) {
    prefix = event.key;
    prefixTimer = window.setTimeout(() => (prefix = ""), 1000);
  }
}

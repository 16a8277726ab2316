import { Store } from "../store";
import { newId, SERVER_SAMPLING, type Conversation, type Turn } from "./model";

const PREFIX = "minisgl-chat:";
const SAVE_MS = 400;

/** Newest first, as this browser keeps them; never empty. */
export const conversations = new Store<readonly Conversation[]>(load());
export const currentId = new Store(conversations.value[0]!.id);
/** Whether the browser has no room for what was said since. */
export const isStorageFull = new Store(false);

const unsaved = new Set<string>();
let timer: ReturnType<typeof setTimeout> | null = null;

export function find(id: string): Conversation | undefined {
  return conversations.value.find((each) => each.id === id);
}

/** The one that is shown. */
export function current(): Conversation {
  return find(currentId.value) ?? conversations.value[0]!;
}

export function change(id: string, how: (conversation: Conversation) => Partial<Conversation>): void {
  conversations.update((all) =>
    all.map((each) => (each.id === id ? { ...each, ...how(each), changedAt: Date.now() } : each)),
  );
  save(id);
}

export function changeTurn(id: string, turnId: string, what: Partial<Turn>): void {
  change(id, ({ turns }) => ({ turns: turns.map((turn) => (turn.id === turnId ? { ...turn, ...what } : turn)) }));
}

/** An empty one is shown, the same if there is one already. It has the settings of the one before. */
export function startConversation(): void {
  const empty = conversations.value.find((each) => each.turns.length === 0);
  if (empty === undefined) {
    const { system, sampling } = current();
    conversations.update((all) => [{ ...blank(), system, sampling }, ...all]);
  }
  currentId.set((empty ?? conversations.value[0]!).id);
}

export function deleteConversation(id: string): void {
  localStorage.removeItem(PREFIX + id);
  unsaved.delete(id);
  conversations.update((all) => {
    const rest = all.filter((each) => each.id !== id);
    return rest.length > 0 ? rest : [blank()];
  });
  if (currentId.value === id) currentId.set(conversations.value[0]!.id);
}

/** Takes over what another tab has changed, and keeps what this one has not saved yet. */
export function listenForOtherTabs(isBusy: (id: string) => boolean): void {
  addEventListener("storage", (event) => {
    if (event.key === null || !event.key.startsWith(PREFIX)) return;
    const id = event.key.slice(PREFIX.length);
    if (unsaved.has(id) || isBusy(id)) return;
    const found = event.newValue === null ? null : parse(event.newValue);
    const rest = conversations.value.filter((each) => each.id !== id);
    const all = found === null ? rest : [found, ...rest];
    conversations.set(all.length > 0 ? all.sort((a, b) => b.changedAt - a.changedAt) : [blank()]);
    if (find(currentId.value) === undefined) currentId.set(conversations.value[0]!.id);
  });
  addEventListener("pagehide", write);
}

function save(id: string): void {
  unsaved.add(id);
  timer ??= setTimeout(write, SAVE_MS);
}

function write(): void {
  if (timer !== null) clearTimeout(timer);
  timer = null;
  try {
    for (const id of unsaved) {
      const conversation = find(id);
      if (conversation !== undefined) localStorage.setItem(PREFIX + id, JSON.stringify(conversation));
    }
    unsaved.clear();
    isStorageFull.set(false);
  } catch {
    isStorageFull.set(true);
  }
}

function load(): Conversation[] {
  const found = Object.keys(localStorage)
    .filter((key) => key.startsWith(PREFIX))
    .map((key) => parse(localStorage.getItem(key)!))
    .filter((each) => each !== null)
    .sort((a, b) => b.changedAt - a.changedAt);
  return found.length > 0 ? found : [blank()];
}

function blank(): Conversation {
  return { id: newId(), title: null, system: "", sampling: SERVER_SAMPLING, turns: [], changedAt: Date.now() };
}

/** null for what is no conversation of this version of the page. */
function parse(text: string): Conversation | null {
  try {
    const read = JSON.parse(text) as Conversation;
    return typeof read.id === "string" && Array.isArray(read.turns) && typeof read.sampling === "object" ? read : null;
  } catch {
    return null;
  }
}

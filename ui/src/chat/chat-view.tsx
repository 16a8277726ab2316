import { useEffect, useState } from "preact/hooks";
import { connection, type Connection } from "../api/connection";
import { ListIcon, PlusIcon, SettingsIcon, SharedIcon } from "../shell/icons";
import { useShortcut } from "../shell/shortcuts";
import { Store, useStore } from "../store";
import { goOn, regenerate, running, sayInstead, send, stop } from "./answering";
import { Composer, focusComposer } from "./composer";
import { ConversationList } from "./conversation-list";
import { change, conversations, current, currentId, isStorageFull, startConversation } from "./conversations";
import { Legend } from "./legend";
import { mayGoOn, promptOf, titleOf, type Turn } from "./model";
import { SamplingPanel } from "./sampling-panel";
import { rangesOf, useSharedPrefix, type Range } from "./shared-prefix";
import type { Edit, TurnActions } from "./turn-view";
import { Turns } from "./turns";

const OBSTACLES: Partial<Record<Connection, string>> = {
  loading: "The model is being loaded; write already",
  draining: "The server is shutting down",
  dead: "The engine has died",
  gone: "The server does not answer; trying again",
  locked: "The server wants a key",
};

const DRAFT = "draft"; // instead of the turn that it will be
/** By conversation: what stands in the field and was not sent. */
const drafts = new Store<ReadonlyMap<string, string>>(new Map());
const showsCache = new Store(localStorage.getItem("minisgl-shows-cache") === "yes");

function switchCache(): void {
  showsCache.update((shown) => !shown);
  localStorage.setItem("minisgl-shows-cache", showsCache.value ? "yes" : "no");
}

function begin(): void {
  startConversation();
  focusComposer();
}

/** Where the keyboard goes on after an edit: the field that had it is gone. */
function focusTurns(): void {
  document.querySelector<HTMLElement>(".turns")?.focus({ preventScroll: true });
}

/** Conversations with the model. */
export function ChatView() {
  useStore(conversations);
  const id = useStore(currentId);
  const draft = useStore(drafts).get(id) ?? "";
  const isBusy = useStore(running).has(id);
  const isLit = useStore(showsCache);
  const isFull = useStore(isStorageFull);
  const obstacle = OBSTACLES[useStore(connection)] ?? null;
  const [edit, setEdit] = useState<Edit | null>(null);
  const [panel, setPanel] = useState<"list" | "sampling" | null>(null);
  useEffect(() => setEdit(null), [id]);
  useEffect(() => {
    if (panel === "list") document.querySelector<HTMLElement>(".conversations .new")?.focus();
  }, [panel]);

  const conversation = current();
  const { turns } = conversation;
  const { messages, places } = promptOf(conversation, asked(turns, edit, draft, isBusy));
  const shared = useSharedPrefix(edit || isLit ? messages : null);
  const ranges = (turnId: string, text: string): Range[] => rangesOf(shared, places.get(turnId), text);
  const write = (text: string): void => drafts.update((all) => new Map(all).set(id, text));
  const actions = actionsOn(id, edit, setEdit);
  const editLast = (): void => {
    const last = turns.findLast(({ role }) => role === "user");
    if (last) actions.edit(last);
  };
  const answerAgain = (): void => {
    const last = turns.at(-1);
    if (last?.role === "assistant") actions.regenerate(last);
  };
  const goOnWithLast = (): void => {
    const last = turns.at(-1);
    if (last && !isBusy && mayGoOn(last)) actions.goOn(last);
  };
  useShortcut("n", "a new conversation", begin);
  useShortcut("/", "write a message", focusComposer);
  useShortcut("e", "edit what you said last", editLast);
  useShortcut("r", "have the last answer written anew", answerAgain);
  useShortcut("g", "go on with an answer that was cut", goOnWithLast);
  useShortcut("c", "show what of the conversation is cached", switchCache);
  useShortcut("l", "show all conversations", () => setPanel(panel === "list" ? null : "list"));
  useShortcut("s", "settings of this conversation", () => setPanel(panel === "sampling" ? null : "sampling"));
  return (
    <section class="chat" aria-label="Chat" data-list={panel === "list" ? "open" : "closed"}>
      <ConversationList onChoice={() => setPanel(null)} />
      {panel === "list" && <button class="curtain" aria-label="Close the list" onClick={() => setPanel(null)} />}
      <div class="talk">
        <header class="bar">
          <button class="quiet icon list" aria-expanded={panel === "list"} aria-label="Conversations" title="Conversations (l)" onClick={() => setPanel("list")}>
            <ListIcon />
          </button>
          <h2>{titleOf(conversation)}</h2>
          <button class="quiet cache" aria-label="Cached" aria-pressed={isLit} title="Show what of it is cached (c)" onClick={switchCache}>
            <SharedIcon /> <span>Cached</span>
          </button>
          <button
            class="quiet icon"
            aria-expanded={panel === "sampling"}
            aria-label="Settings"
            title="Settings (s)"
            onClick={() => setPanel(panel === "sampling" ? null : "sampling")}
          >
            <SettingsIcon />
          </button>
          <button class="quiet icon" aria-label="New conversation" title="New conversation (n)" onClick={begin}>
            <PlusIcon />
          </button>
        </header>
        {panel === "sampling" && <SamplingPanel key={id} conversation={conversation} />}
        <Turns
          key={id}
          turns={turns}
          rangesOf={edit || isLit ? ranges : null}
          edit={edit}
          isBusy={isBusy}
          actions={actions}
        />
        <footer class="foot">
          {isFull && (
            <p class="error small" role="alert">
              This browser has no room for more: what is said now is lost with this tab. Delete conversations.
            </p>
          )}
          {shared && <Legend shared={shared} />}
          <Composer
            draft={draft}
            ranges={isLit && !edit ? ranges(DRAFT, draft) : []}
            isBusy={isBusy}
            obstacle={obstacle}
            onInput={write}
            onSend={() => {
              write("");
              send(id, draft.trim());
            }}
            onStop={() => stop(id)}
          />
        </footer>
      </div>
    </section>
  );
}

/** The turns that a request would send now: with what is being changed, and what is being written. */
function asked(turns: readonly Turn[], edit: Edit | null, draft: string, isBusy: boolean): readonly Turn[] {
  if (edit) return turns.map((turn) => (turn.id === edit.turnId ? { ...turn, text: edit.text } : turn));
  if (isBusy) return turns.slice(0, -1);
  return draft.trim() === "" ? turns : [...turns, { id: DRAFT, role: "user", text: draft }];
}

/** A text that somebody wrote has no tokens of the model's. */
function keepText(id: string, turnId: string, text: string): void {
  change(id, ({ turns }) => ({
    turns: turns.map((turn) => {
      if (turn.id !== turnId || turn.text === text) return turn;
      const { tokenIds: _, ...rest } = turn;
      return { ...rest, text };
    }),
  }));
}

function actionsOn(id: string, edit: Edit | null, setEdit: (edit: Edit | null) => void): TurnActions {
  return {
    edit: (turn) => setEdit({ turnId: turn.id, text: turn.text }),
    write: (text) => edit && setEdit({ ...edit, text }),
    cancel: () => {
      setEdit(null);
      focusTurns();
    },
    save: (sends) => {
      if (edit === null || edit.text.trim() === "") return;
      if (sends) sayInstead(id, edit.turnId, edit.text);
      else keepText(id, edit.turnId, edit.text);
      setEdit(null);
      focusTurns();
    },
    regenerate: (turn) => regenerate(id, turn.id),
    goOn: (turn) => goOn(id, turn.id),
    remove: (turn) => change(id, ({ turns }) => ({ turns: turns.filter((each) => each.id !== turn.id) })),
  };
}

import { useState } from "preact/hooks";
import { AgainIcon, CopyIcon, DeleteIcon, EditIcon } from "../shell/icons";
import { AnswerLine } from "./answer-stats";
import { MarkedText } from "./marked-text";
import { mayGoOn, type Turn } from "./model";
import { RichText } from "./rich-text";
import type { Range } from "./shared-prefix";
import { TextField } from "./text-field";

/** What is being changed at one turn. */
export interface Edit {
  turnId: string;
  text: string;
}

interface Props {
  turn: Turn;
  /** null: its text is shown as it is. */
  ranges: readonly Range[] | null;
  edit: Edit | null;
  isWriting: boolean;
  isLast: boolean;
  actions: TurnActions;
}

export interface TurnActions {
  edit: (turn: Turn) => void;
  write: (text: string) => void;
  cancel: () => void;
  /** Keep what was written; sends: have it answered anew. */
  save: (sends: boolean) => void;
  regenerate: (turn: Turn) => void;
  goOn: (turn: Turn) => void;
  remove: (turn: Turn) => void;
}

/** One message of a conversation, which can be changed. */
export function TurnView({ turn, ranges, edit, isWriting, isLast, actions }: Props) {
  const name = turn.role === "user" ? "You" : "Model";
  const onGoOn = isLast && !edit && mayGoOn(turn) ? () => actions.goOn(turn) : null;
  const buttons = edit ? null : <Actions turn={turn} actions={actions} />;
  return (
    <li class="turn" data-role={turn.role} data-id={turn.id}>
      <h3 class="hidden-label">{name}</h3>
      {edit && <EditBubble turn={turn} edit={edit} ranges={ranges ?? []} actions={actions} />}
      {!edit && (turn.text !== "" || isWriting) && (
        <div class="bubble">
          {ranges ? <MarkedText text={turn.text} ranges={ranges} /> : turn.role === "user" ? turn.text : <RichText text={turn.text} />}
          {isWriting && <span class="caret" aria-hidden="true" />}
        </div>
      )}
      {turn.error && (
        <p class="error" role="alert">
          {turn.error}
        </p>
      )}
      {!isWriting && (turn.stats ? <AnswerLine stats={turn.stats} onGoOn={onGoOn}>{buttons}</AnswerLine> : buttons)}
    </li>
  );
}

function EditBubble({ turn, edit, ranges, actions }: { turn: Turn; edit: Edit; ranges: readonly Range[]; actions: TurnActions }) {
  const isUser = turn.role === "user";
  return (
    <div class="bubble editing">
      <TextField
        value={edit.text}
        label={isUser ? "Your message" : "The model's message"}
        ranges={ranges}
        takesFocus
        onInput={actions.write}
        onEnter={() => actions.save(isUser)}
        onEscape={actions.cancel}
      />
      <div class="edit-buttons">
        <button class="quiet" onClick={actions.cancel}>
          Cancel
        </button>
        <button onClick={() => actions.save(false)} title="Keep it, with all that follows">
          Save
        </button>
        {isUser && (
          <button class="primary" onClick={() => actions.save(true)} title="Have it answered; what follows is gone (Enter)">
            Send
          </button>
        )}
      </div>
    </div>
  );
}

function Actions({ turn, actions }: { turn: Turn; actions: TurnActions }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async (): Promise<void> => {
    await navigator.clipboard.writeText(turn.text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return (
    <div class="actions">
      <button class="quiet icon" aria-label="Edit" title="Edit, and see what stays cached" onClick={() => actions.edit(turn)}>
        <EditIcon />
      </button>
      {turn.role === "assistant" && (
        <button class="quiet icon" aria-label="Regenerate" title="Answer anew" onClick={() => actions.regenerate(turn)}>
          <AgainIcon />
        </button>
      )}
      {"clipboard" in navigator && (
        <button class="quiet icon" aria-label={isCopied ? "Copied" : "Copy"} title={isCopied ? "Copied" : "Copy"} onClick={() => void copy()}>
          <CopyIcon />
        </button>
      )}
      <button class="quiet icon" aria-label="Delete" title="Delete this message" onClick={() => actions.remove(turn)}>
        <DeleteIcon />
      </button>
    </div>
  );
}

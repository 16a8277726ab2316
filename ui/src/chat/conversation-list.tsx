import { useState } from "preact/hooks";
import { Dialog } from "../shell/dialog";
import { DeleteIcon, EditIcon, PlusIcon } from "../shell/icons";
import { useStore } from "../store";
import { running, stop } from "./answering";
import { focusComposer } from "./composer";
import { change, conversations, currentId, deleteConversation, startConversation } from "./conversations";
import { titleOf, type Conversation } from "./model";

/** All conversations of this browser. onChoice: one was chosen. */
export function ConversationList({ onChoice }: { onChoice: () => void }) {
  const all = useStore(conversations);
  const shown = useStore(currentId);
  const busy = useStore(running);
  const [renamed, rename] = useState<string | null>(null);
  const [doomed, doom] = useState<Conversation | null>(null);
  return (
    <nav class="conversations" aria-label="Conversations" onKeyDown={(event) => event.key === "Escape" && onChoice()}>
      <button
        class="new"
        title="New conversation (n)"
        onClick={() => {
          startConversation();
          onChoice();
          focusComposer();
        }}
      >
        <PlusIcon /> New conversation
      </button>
      <ul class="scroll">
        {all.map((each) => (
          <li key={each.id} data-shown={each.id === shown}>
            {each.id === renamed ? (
              <Rename conversation={each} onEnd={() => rename(null)} />
            ) : (
              <>
                <button
                  class="quiet choose"
                  aria-current={each.id === shown}
                  onClick={() => {
                    currentId.set(each.id);
                    onChoice();
                  }}
                >
                  {busy.has(each.id) && <span class="dot" title="being answered" />}
                  <span class="title">{titleOf(each)}</span>
                </button>
                <button class="quiet icon" aria-label={`Rename ${titleOf(each)}`} title="Rename" onClick={() => rename(each.id)}>
                  <EditIcon />
                </button>
                <button class="quiet icon" aria-label={`Delete ${titleOf(each)}`} title="Delete" onClick={() => doom(each)}>
                  <DeleteIcon />
                </button>
              </>
            )}
          </li>
        ))}
      </ul>
      {doomed && (
        <Dialog title="Delete this conversation?" onClose={() => doom(null)}>
          <p class="muted">“{titleOf(doomed)}” is kept in this browser alone, and cannot be brought back.</p>
          <div class="dialog-buttons">
            <button onClick={() => doom(null)}>Keep it</button>
            <button
              class="danger"
              onClick={() => {
                stop(doomed.id);
                deleteConversation(doomed.id);
                doom(null);
              }}
            >
              Delete
            </button>
          </div>
        </Dialog>
      )}
    </nav>
  );
}

function Rename({ conversation, onEnd }: { conversation: Conversation; onEnd: () => void }) {
  const keep = (title: string): void => {
    change(conversation.id, () => ({ title: title.trim() === "" ? null : title.trim() }));
    onEnd();
  };
  return (
    <input
      ref={(field) => field?.focus()}
      class="rename"
      aria-label="Title"
      defaultValue={titleOf(conversation)}
      maxLength={100}
      onBlur={(event) => keep(event.currentTarget.value)}
      onKeyDown={(event) => {
        if (event.key === "Enter") keep(event.currentTarget.value);
        if (event.key !== "Escape") return;
        event.stopPropagation(); // the list stays open
        onEnd();
      }}
    />
  );
}

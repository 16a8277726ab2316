/** Conversations with the model. */
export function ChatView() {
  return <section class="chat" aria-label="Chat" />;
}

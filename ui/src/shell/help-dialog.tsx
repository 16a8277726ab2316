import { useStore } from "../store";
import { Dialog } from "./dialog";
import { shortcuts } from "./shortcuts";

const IN_FIELDS = [
  ["Enter", "send the message"],
  ["Shift Enter", "a new line"],
  ["Escape", "stop the answer, or leave the field"],
];

export function HelpDialog({ onClose }: { onClose: () => void }) {
  const all = useStore(shortcuts);
  return (
    <Dialog title="Keys" onClose={onClose}>
      <table class="keys">
        <tbody>
          {[...all.map(({ key, does }) => [key, does]), ...IN_FIELDS].map(([key, does]) => (
            <tr>
              <th scope="row">
                <kbd>{key}</kbd>
              </th>
              <td>{does}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="muted small">
        <a href="docs">The API</a>, <a href="ui/licenses.txt">licences</a> of what this page is made of.
      </p>
      <div class="dialog-buttons">
        <button onClick={onClose}>Close</button>
      </div>
    </Dialog>
  );
}

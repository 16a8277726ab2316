import { useState } from "preact/hooks";
import { ChatView } from "../chat/chat-view";
import { EngineView } from "../engine/engine-view";
import { useStore } from "../store";
import { ConnectionState } from "./connection-state";
import { HelpDialog } from "./help-dialog";
import { HelpIcon, MoonIcon, SunIcon, SystemIcon } from "./icons";
import { KeyDialog } from "./key-dialog";
import { useShortcut } from "./shortcuts";
import { nextTheme, theme } from "./theme";
import { show, useIsWide, view, type View } from "./view";

const TITLES: Record<View, string> = { chat: "Chat", both: "Both", engine: "Engine" };
const THEME_ICONS = { system: SystemIcon, light: SunIcon, dark: MoonIcon };

/** The page: what is shown of chat and engine, and what stands above them. */
export function App() {
  const wanted = useStore(view);
  const isWide = useIsWide();
  const [helps, setHelps] = useState(false);
  const shown = wanted === "both" && !isWide ? "chat" : wanted;
  useShortcut("1", "show the chat", () => show("chat"));
  useShortcut("2", "show the engine", () => show("engine"));
  useShortcut("3", "show both", () => show("both"));
  useShortcut("t", "light, dark, or as the system", nextTheme);
  useShortcut("?", "show the keys", () => setHelps(true));
  return (
    <>
      <header class="top">
        <h1 class="brand">minisgl</h1>
        <ConnectionState />
        <Views shown={shown} choices={isWide ? ["chat", "both", "engine"] : ["chat", "engine"]} />
        <ThemeButton />
        <button class="quiet icon" onClick={() => setHelps(true)} aria-label="Keys" title="Keys (?)">
          <HelpIcon />
        </button>
      </header>
      <main class="views" data-shown={shown}>
        {shown !== "engine" && <ChatView />}
        {shown !== "chat" && <EngineView />}
      </main>
      {helps && <HelpDialog onClose={() => setHelps(false)} />}
      <KeyDialog />
    </>
  );
}

function Views({ shown, choices }: { shown: View; choices: View[] }) {
  return (
    <nav class="segments" aria-label="What is shown">
      {choices.map((each) => (
        <button key={each} aria-pressed={each === shown} onClick={() => show(each)}>
          {TITLES[each]}
        </button>
      ))}
    </nav>
  );
}

function ThemeButton() {
  const current = useStore(theme);
  const Icon = THEME_ICONS[current];
  return (
    <button class="quiet icon" onClick={nextTheme} aria-label={`Theme: ${current}`} title={`Theme: ${current} (t)`}>
      <Icon />
    </button>
  );
}

import { render } from "preact";
import { watchConnection } from "./api/connection";
import { App } from "./shell/app";
import { listenForShortcuts } from "./shell/shortcuts";
import { startTheme } from "./shell/theme";
import "./style/theme.css";
import "./style/controls.css";
import "./style/shell.css";
import "./chat/chat.css";
import "./engine/engine.css";

startTheme();
listenForShortcuts();
const page = document.getElementById("page")!;
page.replaceChildren();
render(<App />, page);
void watchConnection();

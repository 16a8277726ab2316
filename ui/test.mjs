// Runs ui/tests: the parts of the page that need no browser. `node test.mjs`
import { build } from "esbuild";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const names = readdirSync(join(here, "tests")).filter((name) => name.endsWith(".test.ts"));
const folder = mkdtempSync(join(tmpdir(), "ui-tests-"));
try {
  await build({
    absWorkingDir: here,
    entryPoints: names.map((name) => join("tests", name)),
    outdir: folder,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    platform: "node",
    format: "esm",
    logLevel: "warning",
  });
  const files = names.map((name) => join(folder, name.replace(/ts$/, "mjs")));
  process.exitCode =
    spawnSync(process.execPath, ["--test", "--test-reporter=dot", ...files], { stdio: "inherit" }).status ?? 1;
} finally {
  rmSync(folder, { recursive: true });
}

// Makes the page's files out of ui/src: `node build.mjs [FOLDER]`, by default the folder that the server ships.
// The same sources and the same lock file give the same bytes.
import { build } from "esbuild";
import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = resolve(process.argv[2] ?? join(here, "../minisgl/server/ui"));

const result = await build({
  absWorkingDir: here,
  entryPoints: { app: "src/main.tsx" },
  outdir: out,
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022", "chrome123", "firefox120", "safari17.5"],
  jsx: "automatic",
  jsxImportSource: "preact",
  charset: "utf8",
  legalComments: "none", // licenses.txt has them whole
  metafile: true,
  logLevel: "warning",
});

mkdirSync(out, { recursive: true });
for (const name of ["index.html", "icon.svg"]) cpSync(join(here, "src", name), join(out, name));
writeFileSync(join(out, "licenses.txt"), licenses(Object.keys(result.metafile.inputs)));
for (const [path, { bytes }] of Object.entries(result.metafile.outputs)) console.log(path, bytes);

/** The licence of every package that the bundle holds a part of. */
function licenses(inputs) {
  const names = new Set();
  for (const path of inputs) {
    const found = /^node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path);
    if (found) names.add(found[1]);
  }
  const parts = [...names].sort().map((name) => {
    const folder = join(here, "node_modules", name);
    const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const text = readFileSync(join(folder, "LICENSE"), "utf8").trim();
    return `${name} ${version} (${license})\n\n${text}\n`;
  });
  return `The page contains parts of these packages.\n\n${parts.join(`\n${"-".repeat(78)}\n\n`)}`;
}

// Builds the page's script and style into the Python package, and writes down of which sources they were made.
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync, statSync } from "node:fs";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = fileURLToPath(new URL(".", import.meta.url));
const out = join(here, "../src/midstream/interface/dashboard/static");

await build({
  entryPoints: { app: join(here, "src/main.js") },
  bundle: true,
  minify: true,
  format: "iife",
  target: ["es2022"],
  charset: "utf8",
  legalComments: "none",
  banner: {
    js: "/* Midstream's dashboard, with Preact, htm, uPlot and dagre (all MIT or Apache-2.0): see LICENSES.txt */",
  },
  outdir: out,
});

function sources(folder) {
  return readdirSync(folder)
    .sort()
    .flatMap((name) => {
      const path = join(folder, name);
      return statSync(path).isDirectory() ? sources(path) : [path];
    });
}

// The same as tests/interface/test_dashboard_bundle.py computes: names and contents, in the order of the names.
const hash = createHash("sha256");
const named = [...sources(join(here, "src")), join(here, "build.mjs"), join(here, "package.json"), join(here, "package-lock.json")]
  .map((path) => [relative(here, path).split("\\").join("/"), path])
  .sort(([a], [b]) => (a < b ? -1 : 1));
for (const [name, path] of named) hash.update(name).update("\0").update(readFileSync(path)).update("\0");
for (const name of ["app.js", "app.css"]) hash.update(name).update("\0").update(readFileSync(join(out, name))).update("\0");
writeFileSync(join(out, "built-from.txt"), hash.digest("hex") + "\n");

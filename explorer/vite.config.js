import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

const OUT = "../attnknn/serving/page";
const SOURCES = ["index.html", "package-lock.json", "package.json", "public", "src", "svelte.config.js", "tsconfig.json", "vite.config.js"];

/** All files of the sources, by path, in a fixed order. */
function sourceFiles(path) {
  let names;
  try {
    names = readdirSync(path);
  } catch {
    return [path];
  }
  return names.sort().flatMap((name) => sourceFiles(join(path, name)));
}

/** Writes the hash of the sources beside the built files; a test compares the two. */
function stampSources() {
  return {
    name: "stamp-sources",
    closeBundle() {
      const hash = createHash("sha256");
      for (const path of SOURCES.flatMap(sourceFiles)) {
        hash.update(`${path}\n`);
        hash.update(readFileSync(path));
      }
      writeFileSync(join(OUT, "sources.sha256"), `${hash.digest("hex")}\n`);
    },
  };
}

export default defineConfig({
  base: "./",
  plugins: [svelte(), stampSources()],
  build: {
    outDir: OUT,
    emptyOutDir: true,
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    rollupOptions: {
      output: {
        entryFileNames: "assets/explorer-[hash].js",
        assetFileNames: "assets/explorer-[hash][extname]",
        codeSplitting: false,
      },
    },
  },
});

import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import preact from "@preact/preset-vite";
import { defineConfig, type Plugin } from "vite";

const target = "../src/onejob/dashboard/assets";

/** The server sends compressed copies and does not compress by itself. */
function compressedCopies(): Plugin {
  const compress = (folder: string): void => {
    for (const name of readdirSync(folder)) {
      const path = join(folder, name);
      if (statSync(path).isDirectory()) compress(path);
      else if (/\.(html|js|css|svg)$/.test(name)) {
        writeFileSync(`${path}.gz`, gzipSync(readFileSync(path), { level: 9 }));
      }
    }
  };
  return { name: "compressed-copies", apply: "build", closeBundle: () => compress(target) };
}

export default defineConfig({
  base: "/ui/",
  plugins: [preact({ devToolsEnabled: false, prefreshEnabled: false }), compressedCopies()],
  build: {
    outDir: target,
    emptyOutDir: true,
    target: "es2022",
    // Scripts as text in data: URLs would be against the page's security policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
});

import preact from "@preact/preset-vite";
import { defineConfig } from "vite";

export default defineConfig({
  base: "/ui/",
  plugins: [preact({ devToolsEnabled: false, prefreshEnabled: false })],
  build: {
    // pack.py makes the archive that the server reads of it.
    outDir: "dist",
    emptyOutDir: true,
    target: "es2022",
    // Scripts as text in data: URLs would be against the page's security policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
});

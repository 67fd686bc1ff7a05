"""Evaluate functions of the page's own modules by Node.js."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

UI = Path(__file__).resolve().parents[2] / "ui"
#: Compiles a module with the page's own TypeScript, and evaluates a script that calls it as `page`.
_EVALUATE = """
const [folder, module, script] = process.argv.slice(1);
const { readFileSync } = await import("node:fs");
const { createRequire } = await import("node:module");
const typescript = createRequire(folder + "/package.json")("typescript");
const source = readFileSync(folder + "/src/lib/" + module + ".ts", "utf8");
const options = { compilerOptions: { module: "ESNext", target: "ES2022" } };
const text = typescript.transpileModule(source, options).outputText;
const page = await import("data:text/javascript," + encodeURIComponent(text));
console.log(JSON.stringify(new Function("page", script)(page)));
"""


def evaluate(module: str, script: str) -> Any:
    """Return what `script` returns, the body of a function of `page`, a module without imports."""
    node = shutil.which("node")
    if node is None or not (UI / "node_modules/typescript").is_dir():
        pytest.skip("Node.js or TypeScript is not installed: make ui-check")
    command = [node, "--input-type=module", "-e", _EVALUATE, str(UI), module, script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def call_all(module: str, *calls: list[Any]) -> list[Any]:
    """Return the results of calls, each a list of the function's name and its arguments."""
    script = f"return {json.dumps(calls)}.map(([name, ...values]) => page[name](...values));"
    results: list[Any] = evaluate(module, script)
    return results

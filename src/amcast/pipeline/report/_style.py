"""The style sheet of the page: for screens, narrow windows and paper."""

STYLE = """
:root { --ink: #1d2329; --soft: #5b6670; --line: #dfe3e8; --pass: #00664b; --fail: #a8290b; --unknown: #7a5200; }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; color: var(--ink);
  background: #fff; margin: 0; }
main { max-width: 62rem; margin: 0 auto; padding: 1.5rem 1.25rem 4rem; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .4rem; padding-top: .6rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.6rem 0 .3rem; overflow-wrap: anywhere; }
p { margin: .3rem 0 .7rem; max-width: 52rem; }
.note { color: var(--soft); font-size: .9rem; }
.badge { display: inline-block; padding: .05rem .55rem; border-radius: .9rem; border: 1px solid currentColor;
  font-weight: 600; font-size: .85rem; white-space: nowrap; }
.badge.pass { color: var(--pass); background: #e8f5f0; }
.badge.fail { color: var(--fail); background: #fcece7; }
.badge.unknown { color: var(--unknown); background: #fdf4de; }
.verdict { border-left: .35rem solid var(--line); padding: .2rem 0 .2rem .9rem; margin: 1rem 0; }
.verdict.pass { border-color: var(--pass); }
.verdict.fail { border-color: var(--fail); }
.verdict.unknown { border-color: var(--unknown); }
.verdict h3 { margin: 0 0 .2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .88rem; margin: .4rem 0 1rem; }
th, td { text-align: left; padding: .22rem 1.1rem .22rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 600; white-space: nowrap; }
.compact th { white-space: normal; vertical-align: bottom; }
.compact td, .compact th { padding-right: .8rem; }
.num { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
figure { margin: .6rem 0 1.2rem; overflow-x: auto; }
figure > svg { max-width: 100%; height: auto; }
figure[id^="counterexample"] > svg { max-width: none; }
blockquote { margin: .5rem 0; padding: .4rem .9rem; background: #fcf3f0; border-left: .25rem solid var(--fail);
  overflow-wrap: anywhere; }
details { margin: .6rem 0; }
summary { cursor: pointer; color: #0b5a8f; }
pre { background: #f5f7f9; padding: .8rem; overflow-x: auto; font-size: .8rem; line-height: 1.4; }
code { font-size: .9em; overflow-wrap: anywhere; }
nav { font-size: .9rem; margin: .6rem 0; }
nav a { color: #0b5a8f; margin-right: 1rem; }
@media print { details > * { display: block; } figure, table { break-inside: avoid; } }
"""

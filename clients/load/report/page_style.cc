// The style sheet of report pages: one column on a phone, light and dark by the reader's choice,
// lines in colours that stay apart for colour-blind eyes (Okabe and Ito; for sweeps, viridis).
#include "clients/load/report/html_text.h"

namespace quire::load {

namespace {

constexpr char kPageStyle[] = R"css(
:root{--page:#fff;--ink:#1b1f24;--soft:#59636e;--rule:#d9dee3;--grid:#e8ebee;--card:#f6f8fa;
--blue:#0067a6;--orange:#c2500a;--green:#00805c;--purple:#a2478c;--bad:#b3261e;--bad-page:#fdecea;
--good:#1a6b3a;--good-page:#e9f6ee;
--s0:#c9b400;--s1:#55b848;--s2:#1f9a8a;--s3:#2d708e;--s4:#453781;--s5:#3b0a54;
color-scheme:light dark}
@media (prefers-color-scheme:dark){:root{--page:#14171b;--ink:#e7ebef;--soft:#9aa5b1;--rule:#333a42;
--grid:#262c33;--card:#1c2127;--blue:#5cb8f2;--orange:#f4905a;--green:#3ecfa0;--purple:#e29ad0;
--bad:#ff9a90;--bad-page:#3a1a18;--good:#7bd89c;--good-page:#15301f;
--s0:#7c5fc4;--s1:#4f86b8;--s2:#2fa69a;--s3:#5fc866;--s4:#b4dc3c;--s5:#fde74c}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem;max-width:62rem;background:var(--page);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;
-webkit-text-size-adjust:100%;font-variant-numeric:tabular-nums}
h1{font-size:1.5rem;line-height:1.25;margin:1rem 0 .25rem;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:2.25rem 0 .5rem;padding-top:.5rem;border-top:1px solid var(--rule)}
p{margin:.25rem 0}
.about{color:var(--soft);overflow-wrap:anywhere}
.verdict{margin:0 0 .5rem;padding:.6rem .9rem;border-left:4px solid;border-radius:2px;
overflow-wrap:anywhere}
.verdict.bad{color:var(--bad);background:var(--bad-page)}
.verdict.good{color:var(--good);background:var(--good-page)}
.verdict p{margin:0}
.key{display:grid;grid-template-columns:1fr 1fr;gap:.6rem;margin:1rem 0;
padding:0}
.key div{background:var(--card);border-radius:4px;padding:.6rem .75rem}
.key dt{color:var(--soft);font-size:.8rem;line-height:1.3}
.key dd{margin:0}
.key dd b{font-size:1.35rem;font-weight:600;line-height:1.35}
.key dd span{color:var(--soft);font-size:.8rem}
.key dd.more{color:var(--soft);font-size:.8rem;line-height:1.35}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));
gap:1.5rem 2rem}
.plots .wide{grid-column:1/-1}
figure{margin:0;min-width:0}
figcaption{font-size:.9rem;line-height:1.35;margin-bottom:.35rem}
figcaption span{color:var(--soft)}
.frame{position:relative;height:13rem}
.wide .frame{height:9rem}
.headroom .area{top:1.1rem}
.area{position:absolute;top:.4rem;right:.9rem;bottom:1.4rem;left:2.6rem}
.area svg{position:absolute;width:100%;height:100%;overflow:visible}
.area span{position:absolute;font-size:.75rem;line-height:1;white-space:nowrap;color:var(--soft)}
.area .ytick{transform:translate(-100%,-50%);padding-right:.4rem}
.area .xtick{transform:translate(-50%,.4rem)}
.area .mark{color:var(--ink);text-shadow:0 0 2px var(--page),0 0 2px var(--page),
0 0 4px var(--page)}
.area .before{transform:translate(-100%,-50%);padding-right:.55rem}
.area .after{transform:translate(0,-50%);padding-left:.55rem}
.area .above{transform:translate(0,-160%)}
.area .above.mid{transform:translate(-50%,-160%)}
.area .above.end{transform:translate(-100%,-160%)}
.xlabel{font-size:.75rem;line-height:1.2;color:var(--soft);text-align:right;margin:0 .9rem 0 0}
.nothing{color:var(--soft);font-size:.9rem;padding:2rem 0}
path{fill:none;vector-effect:non-scaling-stroke}
.grid{stroke:var(--grid);stroke-width:1}
.limit{stroke:var(--soft);stroke-width:1;stroke-dasharray:2 3}
.line{stroke-width:1.75;stroke-linejoin:round;stroke-linecap:round}
.dashed{stroke-dasharray:6 4;stroke-linecap:butt}
.dots{stroke-width:6;stroke-linecap:round}
.marks{stroke:var(--ink);stroke-width:6;stroke-linecap:round}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.1rem 1rem;margin:0 0 .35rem;padding:0;
font-size:.8rem;line-height:1.4}
.legend svg{width:1.4rem;height:.5rem;margin-right:.4rem}
.tables{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));gap:0 2rem}
.tables .scroll{min-width:0}
.scroll{overflow-x:auto;margin:.5rem 0 1rem}
table{border-collapse:collapse;font-size:.875rem;line-height:1.35}
caption{text-align:left;color:var(--soft);font-size:.8rem;padding-bottom:.3rem}
th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid var(--grid);
white-space:nowrap;vertical-align:top}
th{font-weight:600}
thead th{border-bottom:1px solid var(--rule);white-space:normal;vertical-align:bottom}
tbody th,.facts td{text-align:left}
tbody th{font-weight:400;color:var(--soft)}
.facts td{white-space:normal;overflow-wrap:anywhere}
th:first-child{padding-left:0;text-align:left}
.full{width:100%}
pre{background:var(--card);padding:.75rem;border-radius:4px;font-size:.8rem;line-height:1.45;
white-space:pre-wrap;overflow-wrap:anywhere}
summary{cursor:pointer;padding:.4rem 0;color:var(--soft);font-size:.9rem}
summary:hover{color:var(--ink)}
footer{margin-top:2rem;padding-top:.5rem;border-top:1px solid var(--rule);color:var(--soft);
font-size:.8rem}
@media (min-width:44rem){.key{grid-template-columns:repeat(4,1fr)}}
@media print{body{max-width:none}figure,.key div{break-inside:avoid}}
)css";

}  // namespace

const char* PageStyle() { return kPageStyle; }

}  // namespace quire::load

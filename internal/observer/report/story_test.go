// SPDX-License-Identifier: MPL-2.0

package report_test

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"
)

// browserVariable, set to "required", makes a browser that is missing a failure.
const browserVariable = "TALOSUPGRADE_BROWSER"

// shotVariable names a directory for screenshots of every page, for people to look
// at.
const shotVariable = "TALOSUPGRADE_SCREENSHOTS"

// lookTimeout bounds all looks at one page.
const lookTimeout = 2 * time.Minute

// view is a screen and what its owner prefers.
type view struct {
	name          string
	width, height int64
	scheme        string
}

func views() []view {
	return []view{
		{"phone-light", 390, 844, "light"},
		{"phone-dark", 390, 844, "dark"},
		{"desktop-light", 1280, 900, "light"},
		{"desktop-dark", 1280, 900, "dark"},
	}
}

// overflow is how many pixels the page is wider than its window.
const overflow = `document.documentElement.scrollWidth - document.documentElement.clientWidth`

// headlineBottom is how far down the end of the headline is.
const headlineBottom = `document.querySelector("h1").getBoundingClientRect().bottom`

// faint lists the texts whose contrast against what is behind them is below 4.5,
// which WCAG 2.2 (1.4.3, level AA) asks for.
const faint = `(() => {
  const channel = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const parts = text => text.match(/[\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const color = parts(getComputedStyle(at).backgroundColor);
      if (color.length < 4 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    if (![...element.childNodes].some(node => node.nodeType === 3 && node.data.trim())) continue;
    const [a, b] = [luminance(parts(getComputedStyle(element).color)), luminance(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push(element.tagName + " " + element.textContent.trim().slice(0, 30) + " " + ratio.toFixed(2));
  }
  return found.join("\n");
})()`

// unfold opens everything that is folded away.
const unfold = `document.querySelectorAll("details").forEach(one => one.open = true)`

// TestPage_FitsEveryScreen opens the page of each scene in a real browser: on a phone
// and on a desk, by day and by night.
func TestPage_FitsEveryScreen(t *testing.T) {
	if testing.Short() {
		t.Skip("it plays what TestPage_SaysWhatHappened plays, and the rest is the browser's")
	}

	browser := launch(t, browserPath(t))

	for name, played := range scenes() {
		t.Run(name, func(t *testing.T) {
			path := played.play(t, t.TempDir(), name)

			for _, view := range views() {
				t.Run(view.name, func(t *testing.T) { look(browser, t, path, name, view) })
			}
		})
	}
}

// browserPath is the browser that the machine has.
func browserPath(t *testing.T) string {
	t.Helper()

	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}

	if os.Getenv(browserVariable) == "required" {
		t.Fatal("there is no chromium or google-chrome on PATH")
	}

	t.Skip("there is no chromium or google-chrome on PATH")

	return ""
}

// launch starts the browser, which is closed at the end of the test.
func launch(t *testing.T, path string) context.Context {
	t.Helper()

	allocated, stop := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WSURLReadTimeout(lookTimeout))...)
	t.Cleanup(stop)

	browser, cancel := chromedp.NewContext(allocated)
	t.Cleanup(cancel)

	if err := chromedp.Run(browser); err != nil {
		t.Fatal(err)
	}

	return browser
}

// look opens the page and fails the test for whatever a person would stumble over.
func look(browser context.Context, t *testing.T, path, name string, as view) {
	t.Helper()

	ctx, problems := open(browser, t)

	var (
		wider, unfolded, headline float64
		pale                      string
		shot                      []byte
	)

	err := chromedp.Run(ctx,
		network.Enable(), log.Enable(),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: as.scheme}}),
		chromedp.EmulateViewport(as.width, as.height),
		chromedp.Navigate("file://"+filepath.ToSlash(path)),
		chromedp.Evaluate(overflow, &wider),
		chromedp.Evaluate(headlineBottom, &headline),
		chromedp.FullScreenshot(&shot, 100),
		chromedp.Evaluate(unfold, nil),
		chromedp.Evaluate(overflow, &unfolded),
		chromedp.Evaluate(faint, &pale),
	)
	if err != nil {
		t.Fatal(err)
	}

	keep(t, name+"-"+as.name+".png", shot)

	if wider > 0 || unfolded > 0 {
		t.Errorf("the page is wider than the screen: by %v, and unfolded by %v pixels", wider, unfolded)
	}

	if headline > float64(as.height)/2 {
		t.Errorf("what became of the run is %v pixels down", headline)
	}

	if pale != "" {
		t.Errorf("hard to read:\n%s", pale)
	}

	if said := problems(); said != "" {
		t.Errorf("the browser complains, or loads something:\n%s", said)
	}
}

// open opens a tab, which is closed at the end of the test. Problems are what the
// browser had to say, and what it loaded beside the page.
func open(browser context.Context, t *testing.T) (ctx context.Context, problems func() string) {
	t.Helper()

	var (
		mu   sync.Mutex
		said []string
	)

	bounded, end := context.WithTimeout(browser, lookTimeout)
	t.Cleanup(end)

	ctx, cancel := chromedp.NewContext(bounded)
	t.Cleanup(cancel)

	chromedp.ListenTarget(ctx, func(event any) {
		mu.Lock()
		defer mu.Unlock()

		switch event := event.(type) {
		case *log.EventEntryAdded:
			said = append(said, event.Entry.Text)
		case *network.EventRequestWillBeSent:
			if !strings.HasSuffix(event.DocumentURL, ".html") || event.Request.URL != event.DocumentURL {
				said = append(said, "request "+event.Request.URL)
			}
		}
	})

	return ctx, func() string {
		mu.Lock()
		defer mu.Unlock()

		return strings.Join(said, "\n")
	}
}

// keep saves a screenshot where somebody wants to look at it.
func keep(t *testing.T, name string, shot []byte) {
	t.Helper()

	directory := os.Getenv(shotVariable)
	if directory == "" {
		return
	}

	if err := os.WriteFile(filepath.Join(directory, name), shot, 0o600); err != nil {
		t.Error(err)
	}
}

var update = flag.Bool("update", false, "write golden files instead of comparing with them")

// TestPage_SaysWhatHappened compares what a person reads on the page of each scene
// with a golden file.
func TestPage_SaysWhatHappened(t *testing.T) {
	for name, played := range scenes() {
		t.Run(name, func(t *testing.T) {
			page := parse(t, played.play(t, t.TempDir(), name))

			golden := filepath.Join("testdata", name+".txt")
			got := strings.Join(visible(page), "\n") + "\n"

			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}

				return
			}

			if diff := cmp.Diff(read(t, golden), got); diff != "" {
				t.Errorf("the page reads otherwise (-want +got), -update accepts it:\n%s", diff)
			}
		})
	}
}

// TestPage_NeedsNothingButItself: nothing is loaded, nothing runs, and the
// browser is told so.
func TestPage_NeedsNothingButItself(t *testing.T) {
	played := scenes()["failed"]
	page := parse(t, played.play(t, t.TempDir(), "failed"))
	policies := 0

	for node := range page.Descendants() {
		if node.Type != html.ElementNode {
			continue
		}

		if slices.Contains([]string{"script", "link", "img", "iframe", "object", "embed", "a", "form", "base"}, node.Data) {
			t.Errorf("there is a <%s>", node.Data)
		}

		for _, attribute := range node.Attr {
			if attribute.Key == "src" || attribute.Key == "href" || strings.HasPrefix(attribute.Key, "on") {
				t.Errorf("<%s> has %s=%q", node.Data, attribute.Key, attribute.Val)
			}

			if attribute.Key == "content" && strings.HasPrefix(attribute.Val, "default-src 'none'") {
				policies++
			}
		}

		if node.Data == "style" && strings.Contains(node.FirstChild.Data, "url(") {
			t.Error("the style sheet loads something")
		}
	}

	if policies != 1 {
		t.Errorf("%d policies forbid the browser to load anything, want 1", policies)
	}
}

func parse(t *testing.T, path string) *html.Node {
	t.Helper()

	page, err := html.Parse(strings.NewReader(read(t, path)))
	if err != nil {
		t.Fatal(err)
	}

	return page
}

// visible are the texts of the page as a person reads them, a line each: the cells
// of a row, and what is in one line otherwise, are in one.
func visible(page *html.Node) []string {
	var (
		lines []string
		line  []string
	)

	flush := func() {
		if len(line) > 0 {
			lines = append(lines, strings.Join(line, " | "))
		}

		line = nil
	}

	blocks := []string{"p", "h1", "h2", "tr", "li", "summary", "div", "section", "header", "footer", "details", "pre", "table"}

	var walk func(*html.Node)

	walk = func(node *html.Node) {
		switch {
		case node.Type == html.TextNode:
			if text := strings.TrimSpace(node.Data); text != "" {
				line = append(line, text)
			}
		case slices.Contains([]string{"head", "style"}, node.Data) && node.Type == html.ElementNode:
			return
		}

		block := slices.Contains(blocks, node.Data)
		if block {
			flush()
		}

		for child := range node.ChildNodes() {
			walk(child)
		}

		if block {
			flush()
		}
	}

	walk(page)

	return lines
}

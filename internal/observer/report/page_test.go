// SPDX-License-Identifier: MPL-2.0

package report_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"
)

var update = flag.Bool("update", false, "write golden files instead of comparing with them")

// TestPagesSayWhatHappened compares what a person reads on the page of each scene
// with a golden file.
func TestPagesSayWhatHappened(t *testing.T) {
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

// TestPagesNeedNothingButThemselves: nothing is loaded, nothing runs, and the
// browser is told so.
func TestPagesNeedNothingButThemselves(t *testing.T) {
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

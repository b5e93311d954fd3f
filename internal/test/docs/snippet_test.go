// SPDX-License-Identifier: MPL-2.0

package docs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// snippet is a configuration that the documentation shows.
type snippet struct {
	// file is relative to the root of the module, line is the number of the first line of the text.
	file string
	line int
	text string
	mark marker
	// shows is the example that the snippet is; empty if it is none.
	shows string
	// dir is the directory from which its relative paths are.
	dir string
	// neighbours are the other configurations on the page: a reader has them as well.
	neighbours []string
}

func (s snippet) String() string { return fmt.Sprintf("%s:%d", s.file, s.line) }

var (
	fence       = regexp.MustCompile("^(\\s*)(```+)\\s*(\\S*)\\s*$")
	fenceOfHCL  = []string{"hcl", "terraform", "tf", "tofu", "opentofu"}
	markerInDoc = regexp.MustCompile(`^\s*<!--\s*validate:\s*(.*?)\s*-->\s*$`)
)

// page returns the snippets in the text of a Markdown file.
func page(file, text string) ([]snippet, error) {
	var (
		found []snippet
		mark  *marker
	)

	lines := strings.Split(text, "\n")

	for i := 0; i < len(lines); i++ {
		if said := markerInDoc.FindStringSubmatch(lines[i]); said != nil {
			read, err := parseMarker(said[1])
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", file, i+1, err)
			}

			mark = &read

			continue
		}

		opening := fence.FindStringSubmatch(lines[i])
		if opening == nil {
			if mark != nil && strings.TrimSpace(lines[i]) != "" {
				return nil, errStray(file, i)
			}

			continue
		}

		end := closing(lines, i, opening[2])

		if !slices.Contains(fenceOfHCL, opening[3]) {
			if mark != nil {
				return nil, errStray(file, i)
			}

			i = end

			continue
		}

		s := snippet{file: file, line: i + 2, dir: path.Dir(file), text: unindent(lines[i+1:end], opening[1])}
		if mark != nil {
			s.mark, mark = *mark, nil
		}

		found = append(found, s)
		i = end
	}

	if mark != nil {
		return nil, fmt.Errorf("%s: a validate comment at its end", file)
	}

	return found, nil
}

func errStray(file string, line int) error {
	return fmt.Errorf("%s:%d: a validate comment without a block of HCL right below it", file, line+1)
}

// closing returns the line that ends the block that begins at start.
func closing(lines []string, start int, marks string) int {
	for i := start + 1; i < len(lines); i++ {
		if strings.TrimSpace(lines[i]) == marks {
			return i
		}
	}

	return len(lines)
}

func unindent(lines []string, indent string) string {
	var text strings.Builder

	for _, line := range lines {
		text.WriteString(strings.TrimPrefix(line, indent) + "\n")
	}

	return text.String()
}

// collect returns every snippet of the module: the blocks of its pages, and the examples that no page shows in full.
func collect(root string) ([]snippet, error) {
	var pages, examples []string

	for _, dir := range []string{"docs", "examples"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(name string, entry fs.DirEntry, err error) error {
			switch relative, _ := filepath.Rel(root, name); {
			case err != nil:
				return err
			case entry.IsDir():
			case strings.HasSuffix(name, ".md"):
				pages = append(pages, filepath.ToSlash(relative))
			case strings.HasSuffix(name, ".tf"), strings.HasSuffix(name, ".tofu"), strings.HasSuffix(name, ".tfquery.hcl"):
				examples = append(examples, filepath.ToSlash(relative))
			}

			return nil
		})
		if err != nil {
			return nil, err
		}
	}

	top, err := filepath.Glob(filepath.Join(root, "*.md"))
	for _, name := range top {
		pages = append(pages, filepath.Base(name))
	}

	shown, collecting := collectPages(root, pages)
	alone, others := collectExamples(root, examples, shown)

	return append(shown, alone...), errors.Join(err, collecting, others)
}

func collectPages(root string, files []string) ([]snippet, error) {
	var all []snippet

	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		if err != nil {
			return nil, err
		}

		found, err := page(file, string(text))
		if err != nil {
			return nil, err
		}

		for i := range found {
			for j := range found {
				if i != j && found[j].mark.validated() {
					found[i].neighbours = append(found[i].neighbours, found[j].text)
				}
			}
		}

		all = append(all, found...)
	}

	return all, nil
}

// collectExamples gives the pages' snippets the directories of the examples that
// they show, and returns the examples that no page shows.
func collectExamples(root string, files []string, shown []snippet) ([]snippet, error) {
	texts := map[string]string{}

	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		if err != nil {
			return nil, err
		}

		texts[file] = string(text)
	}

	var alone []snippet

	for _, file := range files {
		s := snippet{file: file, line: 1, text: texts[file], shows: file, dir: path.Dir(file)}
		found := false

		for i := range shown {
			if strings.TrimSpace(shown[i].text) == strings.TrimSpace(s.text) {
				shown[i].dir, shown[i].shows, found = s.dir, file, true
			}
		}

		if found {
			continue
		}

		if strings.HasSuffix(file, ".tofu") {
			s.mark.only = openTofuOnly
		}

		for _, other := range files {
			if other != file && path.Dir(other) == s.dir {
				s.neighbours = append(s.neighbours, texts[other])
			}
		}

		alone = append(alone, s)
	}

	return alone, nil
}

// SPDX-License-Identifier: MPL-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// order is the order of the headings. It is that of .changie.yaml.
var order = [...]string{"BREAKING CHANGES", "NOTES", "FEATURES", "ENHANCEMENTS", "BUG FIXES"}

var (
	errNoSection = errors.New("no section that begins with ## and a version")
	errReleased  = errors.New("the newest section is of a release that is out: begin a new one, such as ## 0.2.0 (Unreleased)")
)

// section is the part of a changelog about one release.
type section struct {
	// title is the line with the version.
	title string
	// kinds has the lines of each heading, such as "FEATURES".
	kinds map[string][]string
}

// merge adds the lines of changes to the newest section of a changelog, each below its heading. Lines that are
// already there are not added again, so merging twice is the same as merging once.
func merge(changelog, changes string) (string, error) {
	newest, rest := split(changelog)

	into, err := parse(newest)
	if err != nil {
		return "", err
	}

	added, err := parse(changes)
	if err != nil {
		return "", fmt.Errorf("changes: %w", err)
	}

	if len(added.kinds) == 0 {
		return changelog, nil
	}

	if !strings.HasSuffix(into.title, "(Unreleased)") {
		return "", errReleased
	}

	for kind, lines := range added.kinds {
		for _, line := range lines {
			if !slices.Contains(into.kinds[kind], line) {
				into.kinds[kind] = append(into.kinds[kind], line)
			}
		}
	}

	text := into.String()
	if rest != "" {
		text += "\n" + rest
	}

	return text, nil
}

// split cuts a changelog before its second section.
func split(changelog string) (newest, rest string) {
	if at := strings.Index(changelog, "\n## "); at >= 0 {
		return changelog[:at], changelog[at+1:]
	}

	return changelog, ""
}

func parse(text string) (section, error) {
	parsed, kind := section{kinds: make(map[string][]string)}, ""

	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		name, isHeading := strings.CutSuffix(line, ":")

		switch {
		case line == "":
		case parsed.title == "":
			if !strings.HasPrefix(line, "## ") {
				return section{}, errNoSection
			}

			parsed.title = line
		case isHeading && name == strings.ToUpper(name):
			kind = name
		case strings.HasPrefix(line, "* ") && kind != "":
			parsed.kinds[kind] = append(parsed.kinds[kind], line)
		default:
			return section{}, fmt.Errorf("%q is neither a heading such as FEATURES: nor an entry that begins with a star", line)
		}
	}

	return parsed, parsed.check()
}

func (s section) check() error {
	if s.title == "" {
		return errNoSection
	}

	for kind := range s.kinds {
		if !slices.Contains(order[:], kind) {
			return fmt.Errorf("%s is none of the headings %s", kind, strings.Join(order[:], ", "))
		}
	}

	return nil
}

// String returns the section as it is in a changelog.
func (s section) String() string {
	var text strings.Builder

	text.WriteString(s.title + "\n")

	for _, kind := range order {
		if lines := s.kinds[kind]; len(lines) > 0 {
			text.WriteString("\n" + kind + ":\n\n" + strings.Join(lines, "\n") + "\n")
		}
	}

	return text.String()
}

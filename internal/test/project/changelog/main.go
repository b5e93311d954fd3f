// SPDX-License-Identifier: MPL-2.0

// Command changelog adds changes to the newest section of a changelog with HashiCorp's headings, in addition to what
// is already there:
//
//	changelog CHANGELOG.md CHANGES.md
//
// CHANGES.md is what changie makes from the fragments: a section of its own.
package main

import (
	"errors"
	"fmt"
	"log"
	"os"
)

var errUsage = errors.New("usage: changelog CHANGELOG.md CHANGES.md")

func main() {
	log.SetFlags(0)

	if err := run(os.Args[1:]); err != nil {
		log.Fatal("changelog: ", err)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errUsage
	}

	changelog, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}

	changes, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}

	merged, err := merge(string(changelog), string(changes))
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}

	return os.WriteFile(args[0], []byte(merged), 0o600)
}

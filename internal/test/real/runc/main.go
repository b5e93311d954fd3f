// SPDX-License-Identifier: MPL-2.0

//go:build linux

// Command runc becomes runc. If the capability CAP_SYS_RESOURCE is missing, it first removes from the specification
// of a container what only that capability allows.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// next is the real runc, beside this program.
const next = "runc.real"

const capability = "CAP_SYS_RESOURCE"

func main() {
	path, err := os.Executable()
	if err == nil {
		err = rewrite(os.Args[1:])
	}

	if err == nil {
		path = filepath.Join(filepath.Dir(path), next)
		err = syscall.Exec(path, append([]string{path}, os.Args[1:]...), os.Environ())
	}

	fmt.Fprintln(os.Stderr, "runc:", err)
	os.Exit(1)
}

// rewrite changes the specification that the arguments name: that of a container in its bundle, or of a process that
// is started in one.
func rewrite(args []string) error {
	for i, arg := range args {
		name, value, attached := strings.Cut(arg, "=")
		if !attached && i+1 < len(args) {
			value = args[i+1]
		}

		switch name {
		case "--bundle", "-b":
			return rewriteFile(filepath.Join(value, "config.json"), func(spec map[string]any) { relax(child(spec, "process")) })
		case "--process", "-p":
			return rewriteFile(value, relax)
		}
	}

	return nil
}

func rewriteFile(path string, change func(map[string]any)) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}

	spec := map[string]any{}

	// Numbers stay as they are written.
	decoder := json.NewDecoder(strings.NewReader(string(content)))
	decoder.UseNumber()

	if err := decoder.Decode(&spec); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}

	change(spec)

	if content, err = json.Marshal(spec); err != nil {
		return err
	}

	return os.WriteFile(path, content, 0o600)
}

func child(spec map[string]any, name string) map[string]any {
	found, _ := spec[name].(map[string]any)

	return found
}

// relax removes from a process what needs the capability.
func relax(process map[string]any) {
	if score, ok := process["oomScoreAdj"].(json.Number); ok && strings.HasPrefix(score.String(), "-") {
		delete(process, "oomScoreAdj")
	}

	delete(process, "rlimits")

	for name, set := range child(process, "capabilities") {
		if list, ok := set.([]any); ok {
			child(process, "capabilities")[name] = slices.DeleteFunc(list, func(one any) bool { return one == capability })
		}
	}
}

// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// commandLine is a component with the directories, by module, below which its flags are defined. Some directories
// have flags of other components too: the component may have a flag that is found, and does not have one that is not
// found anywhere.
type commandLine struct {
	component   string
	directories map[string][]string
}

// commandLines returns the components to which a machine configuration can add flags.
func commandLines() []commandLine {
	const serving = "pkg/server/options"

	return []commandLine{
		{"kube-apiserver", map[string][]string{
			kubernetesModule:         {"cmd/kube-apiserver/app", "pkg/kubeapiserver", "pkg/controlplane", "plugin/pkg/admission"},
			"k8s.io/apiserver":       {"pkg"},
			"k8s.io/component-base":  {"."},
			"k8s.io/kube-aggregator": {"pkg"},
		}},
		{"kube-controller-manager", map[string][]string{
			kubernetesModule:            {"cmd/kube-controller-manager/app"},
			"k8s.io/apiserver":          {serving, "pkg/util"},
			"k8s.io/cloud-provider":     {"options"},
			"k8s.io/component-base":     {"."},
			"k8s.io/controller-manager": {"."},
		}},
		{"kube-scheduler", map[string][]string{
			kubernetesModule:        {"cmd/kube-scheduler/app"},
			"k8s.io/apiserver":      {serving, "pkg/util"},
			"k8s.io/component-base": {"."},
		}},
		{"kube-proxy", map[string][]string{
			kubernetesModule:        {"cmd/kube-proxy/app"},
			"k8s.io/component-base": {"."},
		}},
		{"kubelet", map[string][]string{
			kubernetesModule:        {"cmd/kubelet/app", "pkg/kubelet/config"},
			"k8s.io/component-base": {"."},
			cadvisorModule:          {"cadvisorflags"},
		}},
	}
}

// readFlags returns the names of flags, without leading dashes, from the Go sources below the directories.
func readFlags(directories []string) (map[string]bool, error) {
	var files []*ast.File

	for _, directory := range directories {
		err := filepath.WalkDir(directory, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}

			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}

			files = append(files, file)

			return nil
		})
		if err != nil {
			return nil, err
		}
	}

	reading := reader{names: map[string]string{}}
	flags := map[string]bool{}

	for _, file := range files {
		reading.nameConstants(file)
	}

	for _, file := range files {
		ast.Inspect(file, func(node ast.Node) bool {
			if call, is := node.(*ast.CallExpr); is {
				if name := reading.flagOf(call); name != "" {
					flags[name] = true
				}
			}

			return true
		})
	}

	if len(flags) == 0 {
		return nil, fmt.Errorf("there are no flags below %s", strings.Join(directories, ", "))
	}

	return flags, nil
}

var (
	// defines matches the methods of a flag set that define a flag: String, StringVar, StringVarP.
	defines = regexp.MustCompile(`^(Bool|Count|Duration|Float|Func|IP|Int|String|Text|Time|Uint|Bytes)?[A-Za-z0-9]*?(Var)?P?$`)
	// flagName matches the name of a flag.
	flagName = regexp.MustCompile(`^[a-z0-9]+([-_][a-z0-9]+)*$`)
)

// flagOf returns the name of the flag that a call defines, with dashes only; empty if it defines none. Names that are
// composed at run time are not found.
func (r *reader) flagOf(call *ast.CallExpr) string {
	// The name and a usage, at least, and a value or a pointer to it.
	const least = 3

	if len(call.Args) < least {
		return ""
	}

	argument := 0

	switch called := call.Fun.(type) {
	case *ast.Ident:
		// A helper of the kubelet for flags of its libraries: register(from, to, name).
		if !strings.HasPrefix(called.Name, "register") {
			return ""
		}

		argument = 2
	case *ast.SelectorExpr:
		parts := defines.FindStringSubmatch(called.Sel.Name)
		if len(parts) == 0 || parts[1] == "" && parts[2] == "" {
			return ""
		}

		if parts[2] != "" {
			argument = 1
		}
	default:
		return ""
	}

	name := r.textOf(call.Args[argument])
	if !flagName.MatchString(name) {
		return ""
	}

	return strings.ReplaceAll(name, "_", "-")
}

// textOf returns the text of a literal or of a constant of the sources.
func (r *reader) textOf(value ast.Expr) string {
	literal, is := value.(*ast.BasicLit)
	if !is {
		return r.names[nameOf(value)]
	}

	text, err := strconv.Unquote(literal.Value)
	if err != nil {
		return ""
	}

	return text
}

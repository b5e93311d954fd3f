// SPDX-License-Identifier: MPL-2.0

package report

import (
	_ "embed"
	"html/template"
)

var (
	//go:embed page.css
	style string
	//go:embed page.html
	markup string
)

// layout is the page. Everything that is put into it is escaped, but for the style
// sheet, which is a part of this package.
func layout() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"style": func() template.CSS { return template.CSS(style) }, //nolint:gosec // embedded
	}).Parse(markup))
}

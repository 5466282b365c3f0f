package policy

import (
	"bytes"
	"html/template"
)

// pageText is the template of all pages. It has no script and loads nothing, so that it is shown under any Content-Security-Policy.
const pageText = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Title}}</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 44em; margin: 2em auto; padding: 0 1em; color: #222; background: #fff }
code { font-size: .9em }
dt { font-weight: 600; margin-top: 1em }
dd { margin: 0 }
td, th { text-align: left; padding: .2em 1em .2em 0; vertical-align: top }
</style>
</head>
<body>
<h1>{{.Title}}</h1>
{{- with .Kind}}
<p><code>{{.Type}}</code>, status {{.Status}}{{if .Retryable}}, retryable: the same request with the same key may succeed{{end}}.</p>
<h2>What has happened</h2>
<p>{{or .Detail .Title}}</p>
<h2>What to do</h2>
<p>{{.Advice}}</p>
<p><a href="./">All rules</a></p>
{{- else}}
<p>Send an Idempotency-Key with a request, and the same one with every retry of it: it is executed once, and each retry gets the
same answer.</p>
<dl>
{{- range .Rules}}
<dt>{{.Name}}</dt>
<dd>{{.Text}}</dd>
{{- end}}
</dl>
<h2>Problems</h2>
<table>
<tr><th>Status</th><th>Type</th><th>Meaning</th><th>Retry</th></tr>
{{- range .Kinds}}
<tr><td>{{.Status}}</td><td><a href="{{.Type}}">{{.Type}}</a></td><td>{{.Title}}</td><td>{{if .Retryable}}yes{{else}}no{{end}}</td></tr>
{{- end}}
</table>
<p><a href="openapi.json">OpenAPI fragment</a></p>
{{- end}}
</body>
</html>
`

type pageData struct {
	Title string
	Kind  *kind
	Rules []rule
	Kinds []kind
}

// index makes the page with the rules, and a table of the problems that this configuration can cause.
func (p *policy) index() []byte {
	return pageData{Title: "Idempotency keys", Rules: p.rules(), Kinds: p.kinds(false)}.render()
}

// page makes the page about one type of problem, to which its type attribute leads.
func (p *policy) page(k kind) []byte { return pageData{Title: k.Title, Kind: &k}.render() }

func (d pageData) render() []byte {
	var b bytes.Buffer
	if err := template.Must(template.New("policy").Parse(pageText)).Execute(&b, d); err != nil {
		panic(err) // cannot happen: the data has only texts of this package
	}
	return b.Bytes()
}

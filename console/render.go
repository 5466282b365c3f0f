package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// parseTemplates parses each page together with the layout.
func (c *Console) parseTemplates() (map[string]*template.Template, error) {
	layout, err := template.New("layout.html").Funcs(template.FuncMap{
		"ago": ago, "count": groupAny, "duration": short, "stamp": stamp, "machine": machine, "field": field, "shorten": shorten, "upTo": upTo,
	}).ParseFS(files, "templates/layout.html", "templates/parts.html")
	if err != nil {
		return nil, fmt.Errorf("read the layout: %w", err)
	}
	names, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		return nil, fmt.Errorf("look for templates: %w", err)
	}
	all := map[string]*template.Template{}
	for _, name := range names {
		page := strings.TrimSuffix(path.Base(name), ".html")
		if page == "layout" || page == "parts" {
			continue
		}
		one, err := layout.Clone()
		if err == nil {
			one, err = one.ParseFS(files, name)
		}
		if err != nil {
			return nil, fmt.Errorf("read the page %s: %w", page, err)
		}
		all[page] = one
	}
	return all, nil
}

// stamp formats a time for people, in UTC.
func stamp(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format("2006-01-02 15:04:05") + " UTC"
}

// machine formats a time for the HTML attribute datetime.
func machine(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// field formats a time for a form field of type datetime-local.
func field(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format("2006-01-02T15:04")
}

// ago formats how long before or after now a time is.
func ago(now, at time.Time) string {
	d := now.Sub(at)
	switch {
	case at.IsZero():
		return ""
	case d < 0 && d > -time.Second, d >= 0 && d < time.Second:
		return "now"
	case d < 0:
		return "in " + short(-d)
	default:
		return short(d) + " ago"
	}
}

// short formats a duration with its largest unit, or the largest two.
func short(d time.Duration) string {
	const day = 24 * time.Hour
	two := func(n time.Duration, unit string, m time.Duration, small string) string {
		if m == 0 {
			return fmt.Sprintf("%d %s", n, unit)
		}
		return fmt.Sprintf("%d %s %d %s", n, unit, m, small)
	}
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < 10*time.Minute:
		return two(d/time.Minute, "min", d%time.Minute/time.Second, "s")
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < day:
		return two(d/time.Hour, "h", d%time.Hour/time.Minute, "min")
	case d < 10*day:
		return two(d/day, "d", d%day/time.Hour, "h")
	default:
		return fmt.Sprintf("%d d", d/day)
	}
}

// group writes a number with a thin space after each three digits (ISO 80000-1). The space does not break at the end of a line.
func group(n int64) string {
	digits := strconv.FormatInt(n, 10)
	var out strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 && digits[i-1] != '-' {
			out.WriteRune('\u202f')
		}
		out.WriteRune(d)
	}
	return out.String()
}

// groupAny is group for the integer types that templates contain.
func groupAny(n any) string {
	switch n := n.(type) {
	case int:
		return group(int64(n))
	case int64:
		return group(n)
	default:
		return fmt.Sprint(n)
	}
}

// counted returns a number with its noun, in singular or plural.
func counted(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return group(n) + "\u00a0" + many
}

// upTo formats a count that stops at bound: then it has a plus. Templates call it with int and int64, hence the reflection.
func upTo(bound int, n any) string {
	all := reflect.ValueOf(n).Int()
	if all >= int64(bound) {
		return group(all) + "+"
	}
	return group(all)
}

func number(n int) string { return strconv.Itoa(n) }

func positive(n int64) string {
	if n <= 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// shorten cuts a text to n characters, the ellipsis included. It counts runes, so a character is never cut in two.
func shorten(n int, text string) string {
	runes := []rune(text)
	if len(runes) <= n {
		return text
	}
	return string(runes[:n-1]) + "…"
}

// policy is the Content-Security-Policy. It permits only the page's own stylesheet, icon and forms, and no script at all.
const policy = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// secure sets the headers that every answer has.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	// With no-referrer, browsers send "Origin: null" with a form. The check of the form's origin would then refuse it.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
	h.Set("X-Robots-Tag", "noindex")
	h.Set("Cache-Control", "no-store")
}

//go:embed assets templates
var files embed.FS

const (
	stylesheet = "console.css"
	icon       = "icon.svg"
)

// asset is a file that pages refer to. Its name contains a hash of its content, so browsers may keep it until it changes.
type asset struct {
	kind, hash string
	data       []byte
}

func readAssets() (map[string]asset, error) {
	all := map[string]asset{}
	for name, kind := range map[string]string{stylesheet: "text/css; charset=utf-8", icon: "image/svg+xml"} {
		data, err := files.ReadFile("assets/" + name)
		if err != nil {
			return nil, fmt.Errorf("read an embedded file: %w", err)
		}
		sum := sha256.Sum256(data)
		all[name] = asset{kind, hex.EncodeToString(sum[:8]), data}
	}
	return all, nil
}

// assetHref returns an address that changes with the content, so a new version of this program is never shown with an old stylesheet.
func (c *Console) assetHref(name string) string { return name + "?v=" + c.assets[name].hash }

// sendAsset permits caching only for the current hash. An address without it may be served by another version, during a rolling update.
func sendAsset(v *visit) error {
	a := v.assets[v.name]
	v.w.Header().Set("Content-Type", a.kind)
	if v.URL.Query().Get("v") == a.hash {
		v.w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
	}
	v.w.WriteHeader(http.StatusOK)
	_, _ = v.w.Write(a.data)
	return nil
}

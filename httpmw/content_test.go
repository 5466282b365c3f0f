package httpmw_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgtest"
)

func parts(boundary string, list ...string) string {
	var b strings.Builder
	for _, p := range list {
		head, body, _ := strings.Cut(p, "|")
		b.WriteString("--" + boundary + "\r\n" + strings.ReplaceAll(head, "\n", "\r\n") + "\r\n\r\n" + body + "\r\n")
	}
	return b.String() + "--" + boundary + "--\r\n"
}

func packed(t *testing.T, with, text string) string {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser = zlib.NewWriter(&b)
	switch with {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "flate":
		raw, err := flate.NewWriter(&b, 9)
		require.NoError(t, err)
		w = raw
	}
	_, err := w.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

// What clients write anew for a retry is the same request, and what means something else is another one.
//
//nolint:lll // a row is a case
func TestBodiesAreComparedByMeaning(t *testing.T) {
	t.Parallel()
	const (
		json   = "application/json"
		form   = "application/x-www-form-urlencoded"
		file   = "Content-Disposition: form-data; name=\"f\"; filename=\"a.txt\"\nContent-Type: text/plain|hello"
		field  = "Content-Disposition: form-data; name=\"n\"|1"
		amount = `{"amount": 1}`
	)
	multi := func(b string) string { return "multipart/form-data; boundary=" + b }
	batch := func(b string, list ...string) string {
		return "Content-Type: multipart/mixed; boundary=" + b + "|" + parts(b, list...)
	}
	type sent struct{ media, encoding, body string }
	db := pgtest.Migrated(t)
	for name, c := range map[string]struct {
		first, second sent
		same          bool
	}{
		"another boundary":         {sent{multi("a"), "", parts("a", file, field)}, sent{`Multipart/Form-Data; boundary="b b"`, "", parts("b b", file, field)}, true},
		"length in a part":         {sent{multi("a"), "", parts("a", file)}, sent{multi("b"), "", parts("b", "Content-Length: 5\n"+file)}, true},
		"another order of parts":   {sent{multi("a"), "", parts("a", file, field)}, sent{multi("b"), "", parts("b", field, file)}, false},
		"another file name":        {sent{multi("a"), "", parts("a", file)}, sent{multi("b"), "", parts("b", strings.Replace(file, "a.txt", "b.txt", 1))}, false},
		"another folder":           {sent{multi("a"), "", parts("a", file)}, sent{multi("b"), "", parts("b", strings.Replace(file, "a.txt", "x/a.txt", 1))}, false},
		"another name":             {sent{multi("a"), "", parts("a", file)}, sent{multi("b"), "", parts("b", strings.Replace(file, `"f"`, `"g"`, 1))}, false},
		"another type of a part":   {sent{multi("a"), "", parts("a", file)}, sent{multi("b"), "", parts("b", strings.Replace(file, "text/plain", "text/css", 1))}, false},
		"a part's type, capitals":  {sent{multi("a"), "", parts("a", file)}, sent{multi("b"), "", parts("b", strings.Replace(file, "text/plain", "Text/Plain", 1))}, true},
		"a part, encoded":          {sent{multi("a"), "", parts("a", file)}, sent{multi("b"), "", parts("b", "Content-Transfer-Encoding: base64\n"+file)}, false},
		"its encoding in capitals": {sent{multi("a"), "", parts("a", "Content-Transfer-Encoding: binary\n"+file)}, sent{multi("b"), "", parts("b", "Content-Transfer-Encoding: Binary\n"+file)}, true},
		"other bytes":              {sent{multi("a"), "", parts("a", file)}, sent{multi("b"), "", parts("b", file+"!")}, false},
		"a part more":              {sent{multi("a"), "", parts("a", file)}, sent{multi("b"), "", parts("b", file, field)}, false},
		"a part that is cut off":   {sent{multi("a"), "", parts("a", file)}, sent{multi("a"), "", strings.TrimSuffix(parts("a", file), "--\r\n")}, false},
		"parts within a part":      {sent{multi("a"), "", parts("a", batch("c", file, field))}, sent{multi("b"), "", parts("b", batch("d", file, field))}, true},
		"within parts of a part":   {sent{multi("a"), "", parts("a", batch("c", batch("e", file)))}, sent{multi("b"), "", parts("b", batch("d", batch("f", file)))}, true},
		"a part more within one":   {sent{multi("a"), "", parts("a", batch("c", file))}, sent{multi("b"), "", parts("b", batch("d", file, field))}, false},
		"another byte within one":  {sent{multi("a"), "", parts("a", batch("c", file))}, sent{multi("b"), "", parts("b", batch("d", file+"!"))}, false},
		"parts in its name only":   {sent{multi("a"), "", parts("a", "Content-Type: multipart/mixed; boundary=c|x")}, sent{multi("a"), "", parts("a", "Content-Type: multipart/mixed; boundary=d|x")}, false},
		"related, another id":      {sent{"multipart/related; boundary=a", "", parts("a", "Content-Id: 1|x")}, sent{"multipart/related; boundary=b", "", parts("b", "Content-Id: 2|x")}, false},
		"JSON with its charset":    {sent{json, "", amount}, sent{`Application/JSON; Charset="UTF-8"`, "", amount}, true},
		"JSON in latin 1":          {sent{json, "", amount}, sent{json + "; charset=iso-8859-1", "", amount}, false},
		"a version of the type":    {sent{json, "", amount}, sent{json + "; version=2", "", amount}, false},
		"a form with its charset":  {sent{form, "", "a=1"}, sent{form + ";charset=utf-8", "", "a=1"}, true},
		"fields in another order":  {sent{form, "", "a=1&b=2&a=3"}, sent{form, "", "b=2&a=1&a=%33"}, true},
		"values in another order":  {sent{form, "", "a=1&a=3"}, sent{form, "", "a=3&a=1"}, false},
		"text in another charset":  {sent{"text/plain", "", "a"}, sent{"text/plain; charset=utf-8", "", "a"}, false},
		"gzip":                     {sent{json, "", amount}, sent{json, "gzip", packed(t, "gzip", `{"amount":1}`)}, true},
		"deflate":                  {sent{json, "identity", amount}, sent{json, "deflate", packed(t, "zlib", amount)}, true},
		"deflate without a frame":  {sent{json, "gzip", packed(t, "gzip", amount)}, sent{json, "Deflate", packed(t, "flate", amount)}, true},
		"twice":                    {sent{json, "", amount}, sent{json, "deflate, gzip", packed(t, "gzip", packed(t, "zlib", amount))}, true},
		"gzip of something else":   {sent{json, "", amount}, sent{json, "gzip", packed(t, "gzip", `{"amount": 2}`)}, false},
		"gzip in its name only":    {sent{json, "", amount}, sent{json, "gzip", amount}, false},
		"an encoding nobody knows": {sent{json, "", amount}, sent{json, "br", amount}, false},
		"a bomb":                   {sent{"text/plain", "gzip", packed(t, "gzip", strings.Repeat("a", 3<<20))}, sent{"text/plain", "gzip", packed(t, "gzip", strings.Repeat("a", 3<<20)+"b")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServiceOn(t, db)
			s.start(s.pay)
			send := func(c sent) reply {
				changes := []change{header("Content-Type", c.media)}
				if c.encoding != "" {
					changes = append(changes, header("Content-Encoding", c.encoding))
				}
				return s.post("k", c.body, changes...)
			}
			for range 2 {
				require.Equal(t, http.StatusCreated, send(c.first).status)
			}
			want := http.StatusUnprocessableEntity
			if c.same {
				want = http.StatusCreated
			}
			require.Equal(t, want, send(c.second).status)
			require.Equal(t, 1, s.payments())
		})
	}
}

// A service knows better what makes its requests the same.
func TestFingerprintOfTheService(t *testing.T) {
	t.Parallel()
	for _, lease := range []bool{false, true} {
		s := newService(t)
		if lease {
			s = newLeased(t)
		}
		s.cfg.Fingerprint = func(r *http.Request, body []byte) ([]byte, error) {
			again, err := io.ReadAll(r.Body)
			if string(again) != string(body) {
				err = errors.New("another body")
			}
			if string(body) == "planted" {
				err = errors.New("planted")
			}
			return body[:1], err
		}
		s.start(s.pay)
		require.Equal(t, http.StatusCreated, s.post("k", "a1").status)
		require.Equal(t, http.StatusCreated, s.post("k", "a2", header("Content-Type", "text/css")).status)
		require.Equal(t, http.StatusUnprocessableEntity, s.post("k", "b1").status)
		got := s.post("k", "planted")
		require.Equal(t, http.StatusBadRequest, got.status)
		kind, _ := got.problem(t)
		require.Equal(t, "request-body-unreadable", kind)
		require.Contains(t, s.log.String(), "IdempotencyConfig.Fingerprint returned an error")
		require.NotContains(t, s.log.String(), "planted")
		require.Equal(t, 1, s.payments())
	}
}

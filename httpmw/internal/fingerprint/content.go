package fingerprint

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"crypto/sha256"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
)

// maxInflated limits the content of a compressed body, in bytes, if Config.MaxBody is negative.
const maxInflated = 64 << 20

// mostNested is how deep parts within parts are compared by content. Clients use one level: files of one field, or the requests of a batch.
const mostNested = 3

const (
	mediaForm = "application/x-www-form-urlencoded"
	mediaJSON = "application/json"
)

// content is what a body means: its normalized media type, how the bytes are to be read, and the bytes.
type content struct {
	media, form string
	body        []byte
}

// meaning returns the content that is compared: it is the same for all spellings that clients and proxies use. A body that does not match its media
// type is compared byte for byte.
func (f *Printer) meaning(h http.Header, body []byte) content {
	// Compression is removed first: a proxy may add it to one try and not to another.
	encoding, body := f.decoded(h, body)
	kind, params, err := parseMedia(h.Get("Content-Type"))
	c := content{media: h.Get("Content-Type"), form: "raw" + encoding, body: body}
	if err == nil {
		c.media = mediaType(kind, params)
	}
	if encoding != "" {
		return c // an unknown compression hides the content
	}
	switch {
	case kind == mediaJSON, strings.HasSuffix(kind, "+json"):
		if canonical, ok := canonicalJSON(body, f.exclude); ok {
			c.form, c.body = "json", canonical
		}
	// Encode sorts by name and keeps the order of equal names, which services may rely on.
	case kind == mediaForm:
		if fields, err := url.ParseQuery(string(body)); err == nil {
			c.form, c.body = "form", []byte(fields.Encode())
		}
	case strings.HasPrefix(kind, "multipart/") && params["boundary"] != "":
		if parts, err := multipartDigest(body, kind, params["boundary"], mostNested); err == nil {
			delete(params, "boundary")
			c.media, c.form, c.body = mediaType(kind, params), "parts", parts
		}
	}
	return c
}

// parseMedia takes a media type apart. For the usual one it makes no map, which saves time in each request.
func parseMedia(text string) (kind string, params map[string]string, err error) {
	if text == mediaJSON { // nearly all requests have exactly this media type
		return text, nil, nil
	}
	return mime.ParseMediaType(text)
}

// mediaType returns the one form of a media type: names and character sets in lower case, and no character set where it is the default, which is
// UTF-8 for JSON and for forms.
func mediaType(kind string, params map[string]string) string {
	if kind == mediaJSON && len(params) == 0 {
		return kind
	}
	if set, ok := params["charset"]; ok {
		set = strings.ToLower(set)
		params["charset"] = set
		form := kind == mediaForm || kind == "multipart/form-data"
		if set == "utf-8" && (form || kind == mediaJSON || strings.HasSuffix(kind, "+json")) {
			delete(params, "charset")
		}
	}
	return mime.FormatMediaType(kind, params)
}

// multipartDigest returns a hash for each part, made from its headers and its bytes, or from its own parts. The boundary is not compared, because a
// client chooses a new one for each body. Of a form only name, file name, type and transfer encoding count (RFC 7578, section 4.8).
func multipartDigest(body []byte, kind, boundary string, nested int) ([]byte, error) {
	var all []byte
	for r := multipart.NewReader(bytes.NewReader(body), boundary); ; {
		part, err := r.NextRawPart()
		if err == io.EOF { // only a bare EOF is the end; a wrapped one means that the last boundary is missing
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		// Two hashes, so that headers and content cannot be mistaken for each other, wherever one ends.
		head, sum := sha256.New(), sha256.New()
		inner, params, noType := mime.ParseMediaType(part.Header.Get("Content-Type"))
		if noType == nil && nested > 0 && strings.HasPrefix(inner, "multipart/") && params["boundary"] != "" {
			if err := nestedDigest(part, sum, inner, params, nested-1); err != nil {
				return nil, err
			}
			// The mark keeps a part that is compared by its parts from being equal to a part with just those bytes.
			_, _ = head.Write([]byte("parts\x00"))
		} else if _, err := io.Copy(sum, part); err != nil {
			return nil, err
		}
		for _, name := range partHeaders(part.Header, kind) {
			for _, value := range part.Header[name] {
				_, _ = head.Write([]byte(name + "\x00" + partValue(name, value) + "\x00"))
			}
		}
		all = append(head.Sum(all), sum.Sum(nil)...)
	}
}

// nestedDigest adds the parts within a part to sum, if its media type is a multipart one. Other bytes are compared as they are.
func nestedDigest(part *multipart.Part, sum io.Writer, kind string, params map[string]string, nested int) error {
	body, err := io.ReadAll(part)
	if err != nil {
		return err
	}
	if parts, err := multipartDigest(body, kind, params["boundary"], nested); err == nil {
		delete(params, "boundary")
		part.Header.Set("Content-Type", mediaType(kind, params))
		body = parts
	}
	_, _ = sum.Write(body) // a hash returns no error
	return nil
}

// partHeaders returns the headers of a part that count, sorted. Content-Length follows from the bytes. In a form only
// three headers have a meaning.
func partHeaders(h textproto.MIMEHeader, kind string) (names []string) {
	for name := range h {
		switch name {
		case "Content-Disposition", "Content-Type", "Content-Transfer-Encoding":
		case "Content-Length":
			continue
		default:
			if kind == "multipart/form-data" {
				continue
			}
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// partValue returns the one form of a header's value: parameters sorted and names in lower case. A value that cannot be
// parsed is compared as it is.
func partValue(name, value string) string {
	if name == "Content-Transfer-Encoding" {
		return strings.ToLower(value)
	}
	kind, params, err := mime.ParseMediaType(value)
	if err != nil {
		return value
	}
	if one := mediaType(kind, params); one != "" {
		return one
	}
	return value
}

// decoded returns the decompressed body. left names the encodings that could not be removed: they are unknown, the bytes are malformed, or the
// content would be larger than the limit.
func (f *Printer) decoded(h http.Header, body []byte) (left string, _ []byte) {
	lines := h.Values("Content-Encoding")
	if len(lines) == 0 {
		return "", body
	}
	// Encodings are listed in the order in which they were applied (RFC 9110, section 8.4), so they are
	// removed from the end.
	all := strings.ToLower(strings.Join(lines, ","))
	plain := body
	for _, name := range slices.Backward(strings.Split(all, ",")) {
		var ok bool
		if plain, ok = f.inflated(strings.TrimSpace(name), plain); !ok {
			return " " + all, body
		}
	}
	return "", plain
}

// inflated returns false if the result would be larger than the limit: a small body can inflate to gigabytes.
func (f *Printer) inflated(encoding string, body []byte) ([]byte, bool) {
	var from io.Reader
	var err error
	switch encoding {
	case "", "identity":
		return body, true
	case "gzip", "x-gzip":
		from, err = gzip.NewReader(bytes.NewReader(body))
	case "deflate":
		if from, err = zlib.NewReader(bytes.NewReader(body)); err != nil { // some clients send deflate without the zlib header and trailer
			from, err = flate.NewReader(bytes.NewReader(body)), nil
		}
	default:
		return nil, false
	}
	if err != nil {
		return nil, false
	}
	limit := f.limit
	if limit < 0 {
		limit = maxInflated
	}
	// One byte more than allowed shows that there is too much.
	plain, err := io.ReadAll(io.LimitReader(from, limit+1))
	return plain, err == nil && int64(len(plain)) <= limit
}

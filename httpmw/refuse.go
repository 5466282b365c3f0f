package httpmw

import (
	"encoding/json"
	"errors"
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// RefuseFunc answers a request that a middleware refuses, in the format of the service's own errors, in place of application/problem+json. It is
// called once for each refusal that is sent, when the transaction has ended. Its answer is sent to this client and never stored.
//
// w has the headers of the refusal: Retry-After if waiting helps, WWW-Authenticate of a 401, Link, Location, and the headers of middlewares further
// out. The function sets Content-Type. The status is p.Status unless it writes another one. The body of r has been read.
//
// Its answer is held until it returns. If it has written neither a status nor a body, or the answer cannot be sent, the problem is sent as
// application/problem+json, and an error is logged. A panic goes on, and nothing that was written before it is sent.
type RefuseFunc func(w http.ResponseWriter, r *http.Request, p Problem)

// errNothingWritten is the error of a RefuseFunc that has written nothing.
var errNothingWritten = errors.New("httpmw: the function for refusals has written neither a status nor a body")

// sender sends the answers of one middleware, and knows how it writes refusals.
type sender struct {
	base string     // what the types of problems begin with
	own  RefuseFunc // nil: application/problem+json
	log  *slog.Logger
}

// send sends an answer. An error of the connection is ignored, because nobody is left who could be informed.
func (s *sender) send(a *answer, w http.ResponseWriter, r *http.Request) {
	if a.past {
		cut(w)
	}
	if a.problem == nil {
		a.write(w)
		return
	}
	whole := s.refusal(a, w, r)
	if whole == nil {
		return
	}
	markRefused(w)
	doubt := a.silent && ofNetHTTP(w)
	if doubt && r.ProtoMajor == 1 {
		whole.header.Set("Connection", "close") // hadBegun has broken the connection for further requests
	}
	whole.write(w)
	if doubt && hadBegun(w, r) {
		s.log.ErrorContext(r.Context(), "oncebox: a handler sent a part of its answer before COMMIT, so a client may have seen success although the work "+
			"failed", "method", r.Method, "route", r.Pattern,
			"error", errPast)
		cut(w)
	}
}

// refusal completes the answer for a problem. It returns nil if the service's RefuseFunc has sent an answer itself, past the recorder.
func (s *sender) refusal(a *answer, w http.ResponseWriter, r *http.Request) *answer {
	if s.own != nil {
		rec, past := newRecorder(w, -1), watchPast(w)
		rec.header, rec.implied = a.header.Clone(), a.status
		s.own(rec, r, *a.problem)
		rec.end(returned, func() {})
		if past() {
			return nil
		}
		err := errNothingWritten
		if rec.status != 0 {
			err = rec.finish(false)
		}
		if err == nil {
			return rec.answer()
		}
		s.log.ErrorContext(r.Context(), "oncebox: the service's own function for refusals has not written an answer, so the refusal is sent as "+
			"application/problem+json",
			"type", a.problem.Type, "method", r.Method, "route", r.Pattern, "error", err)
	}
	p := *a.problem
	p.Type = s.base + p.Type
	return a.as(p, r)
}

// as returns the answer with the problem as its body, in a media type that the client accepts.
func (a *answer) as(p Problem, r *http.Request) *answer {
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // the problems of this package always have a body; an extension of the service may have none
	}
	header := a.header.Clone()
	header.Set("Content-Type", mediaProblem)
	if wantsJSON(r.Header.Values("Accept")) {
		header.Set("Content-Type", mediaJSON)
	}
	return &answer{status: p.Status, header: header, body: body}
}

// markRefused marks the next answer as a refusal for a middleware further out, whose recorder is w. That middleware then neither stores the answer
// nor commits, whatever its status.
func markRefused(w http.ResponseWriter) {
	for w := range layers(w) {
		if rec, ok := w.(*recorder); ok {
			rec.markRefused()
		}
	}
}

// The media types of JSON: plain, and of problems (RFC 9457).
const (
	mediaJSON    = "application/json"
	mediaProblem = "application/problem+json"
)

// wantsJSON reports whether an Accept header accepts application/json and not application/problem+json, by name or by wildcard.
func wantsJSON(accept []string) bool {
	wants := false
	for item := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		media, params, err := mime.ParseMediaType(item)
		if q, qErr := strconv.ParseFloat(params["q"], 64); err != nil || qErr == nil && q == 0 {
			continue
		}
		switch media {
		case mediaProblem, "application/*", "*/*":
			return false
		case mediaJSON:
			wants = true
		}
	}
	return wants
}

package httpjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/oncebox/oncebox/httpmw"
)

// Nothing is the input of a request whose body is not read, and the output of an answer without a body.
type Nothing struct{}

// Handler returns a handler that reads the body of a request as an In, calls fn, and answers with status and the Out of fn. If Out is an [Answer], its
// status and headers count. The answer to an error is in [Errors].
func Handler[In, Out any](status int, errs Errors, fn func(r *http.Request, in In) (Out, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in In
		if _, unread := any(in).(Nothing); !unread {
			if err := Read(r, &in); err != nil {
				errs.Refuse(w, r, err)
				return
			}
		}
		out, err := fn(r, in)
		if err != nil {
			errs.Refuse(w, r, err)
			return
		}
		Write(w, r, status, out)
	})
}

// Read decodes the body of a request, whatever its Content-Type. The error is an [httpmw.Problem].
func Read(r *http.Request, in any) error {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, httpmw.DefaultMaxBody))
	if tooLarge, is := errors.AsType[*http.MaxBytesError](err); is {
		return httpmw.Problem{Status: http.StatusRequestEntityTooLarge, Detail: fmt.Sprintf("At most %d bytes are read.", tooLarge.Limit)}
	}
	if err != nil {
		return httpmw.Problem{Status: http.StatusBadRequest, Title: "The request body could not be read", Retryable: true}
	}
	if detail := decode(body, in); detail != "" {
		return httpmw.Problem{Status: http.StatusBadRequest, Title: "The request body is not the JSON of this request", Detail: detail}
	}
	return nil
}

// decode returns what is wrong with a body, "" if nothing is.
func decode(body []byte, in any) string {
	if len(bytes.TrimSpace(body)) == 0 {
		return "The body is empty."
	}
	if !utf8.Valid(body) { // encoding/json would replace the bytes, and two different ids would become one
		return "The body is not valid UTF-8."
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(in)
	if err == nil {
		if _, err = decoder.Token(); errors.Is(err, io.EOF) {
			return ""
		}
		return "The body goes on after its JSON value."
	}
	if form, is := errors.AsType[*json.UnmarshalTypeError](err); is {
		if form.Field == "" {
			return "The body cannot be a JSON " + form.Value + "."
		}
		return fmt.Sprintf("The member %q cannot be a JSON %s.", form.Field, form.Value)
	}
	return "The body cannot be decoded: " + strings.TrimPrefix(err.Error(), "json: ") + "."
}

// Write answers with a status, and with out as JSON, or without a body if out is [Nothing]. If out is an [Answer], its status and its headers count. An
// error of the connection is ignored: a client that repeats the request with its Idempotency-Key gets the answer.
func Write(w http.ResponseWriter, r *http.Request, status int, out any) {
	var header http.Header
	if a, is := out.(parted); is {
		status, header, out = a.parts(status)
	}
	_, empty := out.(Nothing)
	var body []byte
	if !empty {
		var err error
		if body, err = json.Marshal(out); err != nil {
			slog.ErrorContext(r.Context(), "oncebox: the answer to a request cannot be encoded as JSON", "method", r.Method, "path", r.URL.Path, "error", err)
			httpmw.WriteProblem(w, r, httpmw.Problem{Status: http.StatusInternalServerError})
			return
		}
		w.Header().Set("Content-Type", "application/json")
	}
	for name, values := range header {
		w.Header()[http.CanonicalHeaderKey(name)] = values
	}
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

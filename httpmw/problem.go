package httpmw

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// DefaultProblemBase is the default of IdempotencyConfig.ProblemBase.
const DefaultProblemBase = "/problems/"

// Problem is an error in the form of RFC 9457. The middlewares of this package send problems in place of the handler's answer; a handler sends its own
// with [WriteProblem]. A function of package httpjson returns it as its error.
type Problem struct { //nolint:errname // it is an answer as well, with the name of RFC 9457
	// Type is a URI that names the kind of problem. A [RefuseFunc] gets one of the types that the package documentation lists; in JSON
	// IdempotencyConfig.ProblemBase stands before them.
	Type string `json:"type"`
	// Title is the same for all problems of a type.
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail says what happened to the request and what to do. It may be empty.
	Detail string `json:"detail,omitempty"`
	// Retryable is true if the same request with the same key may succeed later.
	Retryable bool `json:"retryable"`
	// ExecutedStatus is the status of an answer that was sent to the first client and not stored; else 0.
	ExecutedStatus int `json:"executed_status,omitempty"`
	// Extensions are further members of the JSON object. Their names differ from those of the other fields.
	Extensions map[string]any `json:"-"`
}

// WriteProblem answers r with p, in the same format in which the middlewares of this package refuse a request: application/problem+json, or
// application/json if the client accepts nothing else. Call it before anything is written. The defaults of p are the status 500, the type "about:blank"
// and the status's text as its title. If waiting helps, see [Problem.Waits], the answer has Retry-After: the value that w has, else one second.
//
// WriteProblem panics if JSON cannot express the extensions.
func WriteProblem(w http.ResponseWriter, r *http.Request, p Problem) {
	p.Status = cmp.Or(p.Status, http.StatusInternalServerError)
	p.Type = cmp.Or(p.Type, "about:blank")
	p.Title = cmp.Or(p.Title, http.StatusText(p.Status))
	p.answer(w, cmp.Or(w.Header().Get("Retry-After"), seconds(DefaultRetryAfter))).as(p, r).write(w)
}

// Error returns status, title and detail.
func (p Problem) Error() string {
	return strings.TrimSuffix(fmt.Sprintf("%d %s: %s", p.Status, cmp.Or(p.Title, http.StatusText(p.Status)), p.Detail), ": ")
}

// MarshalJSON returns the object of RFC 9457, with the extensions behind the other members.
func (p Problem) MarshalJSON() ([]byte, error) {
	type members Problem
	body, err := json.Marshal(members(p))
	if err != nil || len(p.Extensions) == 0 {
		return body, err
	}
	for name := range p.Extensions {
		if slices.Contains([]string{"type", "title", "status", "detail", "retryable", "executed_status"}, name) {
			return nil, fmt.Errorf("httpmw: Problem: the extension %q has the name of another member: choose another name", name)
		}
	}
	more, err := json.Marshal(p.Extensions)
	if err != nil {
		return nil, fmt.Errorf("httpmw: Problem: the extensions: %w", err)
	}
	return slices.Concat(bytes.TrimSuffix(body, []byte("}")), []byte(","), bytes.TrimPrefix(more, []byte("{"))), nil
}

// Sentences about what happened to the work.
const (
	nothingDone = "Nothing was executed."
	workUndone  = "The work was rolled back."
	workFailed  = "The request was executed and failed." // under a lease nothing is rolled back
)

// The problems, in the order of their status.
func keyMissing() Problem {
	return Problem{Type: "idempotency-key-missing", Status: http.StatusBadRequest, Title: "Idempotency-Key is missing",
		Detail: "This request needs an Idempotency-Key header: choose a new key for each operation, and send the same one with every retry of it."}
}

func keyInvalid(reason string) Problem {
	return Problem{Type: "idempotency-key-invalid", Status: http.StatusBadRequest, Title: "Idempotency-Key is invalid", Detail: reason}
}

func scopeInvalid() Problem {
	return Problem{Type: "idempotency-scope-invalid", Status: http.StatusBadRequest, Title: "The request does not say whose key it is",
		Detail: "The request has no valid tenant or no valid user. Nothing was executed."}
}

func tenantInvalid() Problem {
	return Problem{Type: "tenant-invalid", Status: http.StatusBadRequest, Title: "The request does not name a valid tenant"}
}

func bodyUnreadable() Problem {
	return Problem{Type: "request-body-unreadable", Status: http.StatusBadRequest, Title: "The request body could not be read",
		Detail: "The body ended early or is malformed. Nothing was executed.", Retryable: true}
}

func principalMissing() Problem {
	return Problem{Type: "idempotency-principal-missing", Status: http.StatusUnauthorized, Title: "An Idempotency-Key needs an authenticated caller",
		Detail: nothingDone}
}

func inProgress() Problem {
	return Problem{Type: "idempotency-key-in-progress", Status: http.StatusConflict, Title: "A request with this Idempotency-Key is in progress",
		Detail: "Retry with the same key after the time in Retry-After to get its answer.", Retryable: true}
}

func notReplayable(executed int) Problem {
	return Problem{Type: "idempotency-key-not-replayable", Status: http.StatusGone, Title: "The answer to this Idempotency-Key was not kept",
		Detail:         "The request was executed and is not executed again, but its answer could not be kept. Read the resource instead.",
		ExecutedStatus: executed}
}

func bodyTooLarge() Problem {
	return Problem{Type: "request-body-too-large", Status: http.StatusRequestEntityTooLarge, Title: "The request body is too large",
		Detail: nothingDone}
}

func keyReused(status int) Problem {
	return Problem{Type: "idempotency-key-reused", Status: status, Title: "This Idempotency-Key was used with another request",
		Detail: "A key stands for one operation with one content. Choose a new key for another operation."}
}

func answerNotHeld(work string) Problem {
	return Problem{Type: "answer-not-held", Status: http.StatusInternalServerError, Title: "The service produced no answer that can be sent", Detail: work}
}

func transactionEnded() Problem {
	return Problem{Type: "transaction-ended", Status: http.StatusInternalServerError, Title: "The work could not be committed",
		Detail: "The code of the service ended its transaction before the work was complete, so a part of the work may have been done. Read the resource " +
			"to find out."}
}

func misplaced() Problem {
	return Problem{Type: "middleware-misplaced", Status: http.StatusInternalServerError, Title: "The service is misconfigured", Detail: nothingDone}
}

func storeUnavailable() Problem {
	return Problem{Type: "idempotency-store-unavailable", Status: http.StatusServiceUnavailable, Title: "The service cannot store this request now",
		Detail: "Nothing was executed. Retry with the same key.", Retryable: true}
}

func transactionFailed() Problem {
	return Problem{Type: "transaction-failed", Status: http.StatusServiceUnavailable, Title: "The work could not be committed",
		Detail: workUndone, Retryable: true}
}

func commitUnknown() Problem {
	return Problem{Type: "commit-unknown", Status: http.StatusServiceUnavailable, Title: "It is unknown whether the work was committed",
		Detail: "Retry with the same Idempotency-Key: you get the answer, and the work is done at most once.", Retryable: true}
}

// keyUnknown is the problem of a key with an unknown step. An operator has to resolve it, unless the service finds out by itself: each retry calls
// LeaseConfig.Recover again.
func keyUnknown(finds bool) Problem {
	p := Problem{Type: "idempotency-key-unknown", Status: http.StatusServiceUnavailable,
		Title: "The outcome of an earlier request with this Idempotency-Key is unknown",
		Detail: "Nothing was executed now, and nothing is executed with this key until the service has found that out. Retry later with the same " +
			"key.", Retryable: finds}
	if !finds {
		p.Detail = "Nothing was executed now, and nothing is executed with this key until the operators of the service have found that out. Ask them, and " +
			"then send the request again with the same key."
	}
	return p
}

func answerNotStored() Problem {
	return Problem{Type: "answer-not-stored", Status: http.StatusServiceUnavailable, Title: "The answer could not be stored",
		Detail: "The request was executed, but its answer is lost. Retry with the same Idempotency-Key: completed steps are not repeated.", Retryable: true}
}

// Problems returns all problems with which [Idempotency] and [Tenant] may answer, as this configuration words them. Package policy explains
// them to clients.
func (c *IdempotencyConfig) Problems() []Problem {
	lease := c.Lease != nil
	notHeld := answerNotHeld(workUndone)
	if lease {
		notHeld = answerNotHeld(workFailed)
	}
	return []Problem{
		keyMissing(), keyInvalid(""), scopeInvalid(), tenantInvalid(), bodyUnreadable(), principalMissing(), inProgress(), notReplayable(0), bodyTooLarge(),
		keyReused(c.WithDefaults().ReusedStatus), notHeld, transactionEnded(), misplaced(), storeUnavailable(), transactionFailed(), commitUnknown(),
		keyUnknown(lease && c.Lease.Recover != nil), answerNotStored(),
	}
}

// Waits reports whether the same request may succeed later: then the refusal has a Retry-After.
func (p Problem) Waits() bool { return p.Retryable && p.Status >= http.StatusConflict }

// answer returns the problem as an answer, on top of the headers that other middlewares have set. If waiting helps, it has the header Retry-After,
// with retryAfter in seconds.
func (p Problem) answer(w http.ResponseWriter, retryAfter string) *answer {
	header := w.Header().Clone()
	if p.Waits() {
		header.Set("Retry-After", retryAfter)
	}
	return &answer{status: p.Status, header: header, problem: &p}
}

// answerTo returns the problem as the answer to a request whose handler's own answer cannot be sent because of err.
func (p Problem) answerTo(err error, w http.ResponseWriter, retryAfter string) *answer {
	a := p.answer(w, retryAfter)
	a.silent, a.past = errors.Is(err, errSilent), errors.Is(err, errPast)
	return a
}

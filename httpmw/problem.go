package httpmw

import (
	"errors"
	"net/http"
)

// DefaultProblemBase is the default of IdempotencyConfig.ProblemBase.
const DefaultProblemBase = "/problems/"

// Problem is a refusal in the form of RFC 9457, which a middleware of this package sends in place of the handler's answer.
type Problem struct {
	// Type is one of the types that the package documentation lists. In JSON IdempotencyConfig.ProblemBase stands before it.
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

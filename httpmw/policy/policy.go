package policy

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/httpmw/internal/fingerprint"
)

// policy is a configuration, as far as clients see its rules.
type policy struct {
	cfg httpmw.IdempotencyConfig
	ttl time.Duration
}

// kind is a type of problem, as a page shows it.
type kind struct {
	httpmw.Problem

	Advice string // what a client should do
}

// advice is what a client should do about a type of problem.
type advice struct {
	text    string
	happens bool // the problem can occur with this configuration
}

// kinds returns the problems that can occur with this configuration, or with any if all is set, ordered by status.
func (p *policy) kinds(all bool) []kind {
	var kinds []kind
	advised := p.advice()
	for _, problem := range p.cfg.Problems() {
		a := advised[problem.Type]
		if problem.Type == keyInvalid {
			problem.Detail = p.keyRules()
		}
		if all || a.happens {
			kinds = append(kinds, kind{problem, a.text})
		}
	}
	slices.SortStableFunc(kinds, func(a, b kind) int { return cmp.Compare(a.Status, b.Status) })
	return kinds
}

// keyInvalid is the type of problem whose page lists all rules for keys. The problem itself names the defect of one key.
const keyInvalid = "idempotency-key-invalid"

// advice returns the advice for each type of problem.
func (p *policy) advice() map[string]advice {
	const again = "Send the same request again, with the same key, after the time in Retry-After."
	const report = "This is a mistake in the service, not in the request. Report it."
	// With Recover the service finds the outcome out itself, so the client only has to wait.
	lease := p.cfg.Lease != nil
	unknown := "Do not retry automatically. Ask the operators of the service to find out whether the work was done; then send the request again with the " +
		"same key."
	if lease && p.cfg.Lease.Recover != nil {
		unknown = again + " If it stays like this, ask the operators of the service."
	}
	return map[string]advice{
		"idempotency-key-missing":       {"Send an Idempotency-Key.", p.cfg.Required},
		keyInvalid:                      {"Send one key that follows these rules.", true},
		"idempotency-scope-invalid":     {"Correct the part of the request that identifies tenant and user, for example the token or a header.", true},
		"tenant-invalid":                {"Correct the part of the request that names the tenant, for example a header or the host.", true},
		"request-body-unreadable":       {"Send the request again, with the same key.", true},
		"idempotency-principal-missing": {"Authenticate, and send the request again with the same key.", true},
		"idempotency-key-in-progress":   {again, true},
		"idempotency-key-not-replayable": {
			"Read the resource; the Location of the answer may lead to it. Do not choose a new key: that would do the work once more.", true,
		},
		"request-body-too-large": {"Send less: at most " + size(p.cfg.MaxBody) + ".", p.cfg.MaxBody >= 0},
		"idempotency-key-reused": {
			"Choose a new key if this is another operation. If it is a retry, send exactly the content of the first request.", true,
		},
		"answer-not-held":               {report, true},
		"transaction-ended":             {report, !lease},
		"middleware-misplaced":          {report, true},
		"idempotency-store-unavailable": {again, true},
		"transaction-failed":            {again, !lease},
		"commit-unknown":                {again, !lease},
		"idempotency-key-unknown":       {unknown, lease},
		"answer-not-stored":             {again, lease},
	}
}

// rule is one line of the policy's table.
type rule struct{ Name, Text string }

// rules says in words what the configuration does. The texts are made from the same values that the middleware uses, so
// they cannot become wrong.
func (p *policy) rules() []rule {
	c := p.cfg
	rules := []rule{
		{"Requests", fmt.Sprintf("%s with an Idempotency-Key are executed once. %s", list(c.Methods), p.required())},
		{"The key", p.keyRules()},
		{"Whose key", "A key belongs to the caller, the method and the path. The same text sent by another caller, or to another method or path, is " +
			"another key."},
		{"The same request", p.sameness()},
		{"Another request", fmt.Sprintf("With a key that was used for another request, the answer is %d and nothing is executed.", c.ReusedStatus)},
		{"At the same time", p.concurrency()},
		{"Kept", p.kept()},
		{"Replays", "A replay has the status and the body of the first answer, byte for byte, the headers " + list(p.storedHeaders()) +
			" of it, and Idempotent-Replayed: true."},
		{"Sizes", p.sizes()},
	}
	// Without a lease everything is in one transaction, so a failure leaves nothing. With a lease, steps
	// that were done stay done.
	if c.Lease != nil {
		rules = append(rules, rule{"Failures", "If the service dies while it executes a request, retries are answered 409 for up to " +
			"" + duration(c.Lease.WithDefaults().TTL) +
			". The first retry after that continues where the service stopped."})
	} else {
		rules = append(rules, rule{"Failures", "If an answer is not kept, or the service dies while it executes a request, nothing was changed."})
	}
	return rules
}

func (p *policy) required() string {
	if p.cfg.Required {
		return "A key is required."
	}
	return "Without a key they are executed each time."
}

// keyRules is the text about the form of keys. 255 is idempotency.MaxKey.
func (p *policy) keyRules() string {
	text := fmt.Sprintf("%d to 255 visible ASCII characters without quotes and commas, or any in double quotes with \\\" and \\\\ escaped. "+
		"Both are the same key.", p.cfg.MinKey)
	if p.cfg.StrictKey {
		text = fmt.Sprintf("%d to 255 ASCII characters in double quotes, with \\\" and \\\\ escaped.", p.cfg.MinKey)
	}
	return text + " Case matters. Choose a new one for each operation, a UUID for example."
}

// sameness says which differences between two requests do not count. It has to be changed together with
// package fingerprint.
func (p *policy) sameness() string {
	text := "A retry has the same query, content type, body and preconditions: " + list(fingerprint.PreconditionHeaders()) +
		". In JSON, white space and the order of members make no difference, in forms the order of different fields and the boundary between parts. " +
		"A body may be compressed by gzip or deflate at one time and not at another."
	if p.cfg.Fingerprint != nil {
		text = "A retry has the same query and preconditions: " + list(fingerprint.PreconditionHeaders()) + ". The service has its own rule for what else " +
			"has to be the same."
	}
	if len(p.cfg.Exclude) > 0 {
		text += " Differences in these members of the body do not matter: " + list(p.cfg.Exclude) + "."
	}
	if p.cfg.APIVersion != nil {
		text += " It is for the same version of the interface."
	}
	return text
}

// concurrency says what a client sees while another request with its key is at work.
func (p *policy) concurrency() string {
	if p.cfg.Wait > 0 {
		return "While the first request is at work, others with its key wait for its answer, up to " + duration(p.cfg.Wait) + ", and then are answered 409."
	}
	return "While the first request is at work, others with its key are answered 409."
}

func (p *policy) sizes() string {
	text := fmt.Sprintf("Requests have %s at most, answers %s.", size(p.cfg.MaxBody), size(int64(p.cfg.MaxHeld)))
	if p.cfg.MaxAnswer >= 0 {
		text += " Of an answer larger than " + size(int64(p.cfg.MaxAnswer)) + " the body is not kept: retries are answered 410."
	}
	return text
}

// kept says which answers are stored, and for how long. Answers below 400 always are: they report work that was done.
func (p *policy) kept() string {
	text := "for " + duration(p.ttl)
	if p.ttl < 0 {
		text = "for good"
	}
	kept := "all below 400"
	if more := statuses(p.cfg.Keep); len(more) > 0 {
		kept += " and " + list(more)
	}
	return "Answers are kept " + text + ": " + kept + ". Others are not: a retry with the same key is executed."
}

// storedHeaders returns the headers that replays repeat, except for headers that every answer has anyway.
func (p *policy) storedHeaders() []string {
	names := httpmw.StoredHeaders()
	for _, name := range p.cfg.Headers {
		names = append(names, http.CanonicalHeaderKey(name))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// statuses returns the known statuses from 400 on for which keep returns true.
func statuses(keep func(int) bool) []int {
	var kept []int
	for status := http.StatusBadRequest; status < 600; status++ {
		if http.StatusText(status) != "" && keep(status) {
			kept = append(kept, status)
		}
	}
	return kept
}

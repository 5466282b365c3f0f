//nolint:goconst // the words of OpenAPI stand where it wants them
package policy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/oncebox/oncebox/idempotency"
)

// object is a JSON object.
type object = map[string]any

// ref returns a reference to another component of the document.
func ref(to string) object { return object{"$ref": "#/components/" + to} }

// openAPI makes the document. It is a valid OpenAPI document that has only components, so that other documents can refer to them.
func (p *policy) openAPI() []byte {
	text, err := json.MarshalIndent(object{
		"openapi": "3.1.0",
		"info": object{"title": "Idempotency keys", "version": "1", "description": "Components for operations that take an Idempotency-Key: refer to " +
			"them with $ref."},
		"components": object{
			"parameters": object{"IdempotencyKey": p.parameter()},
			"headers": object{
				"IdempotentReplayed": object{
					"description": "true if this is the stored answer to an earlier request with this key.",
					"schema":      object{"type": "string", "const": "true"},
				},
				"WWWAuthenticate": object{"description": "How to authenticate.", "schema": object{"type": "string", "examples": []string{p.cfg.Challenge}}},
				"RetryAfter":      object{"description": "Seconds to wait before the next try.", "schema": object{"type": "integer", "minimum": 0}},
			},
			"responses": p.responses(),
			"schemas":   p.schemas(),
		},
		"x-idempotency": p.extension(),
	}, "", "  ")
	if err != nil {
		panic(err) // cannot happen: the document has only strings, numbers and booleans
	}
	return append(text, '\n')
}

// parameter describes the header. The pattern is what the middleware accepts: plain keys, and keys quoted as a string
// of structured fields (RFC 8941).
func (p *policy) parameter() object {
	quoted := fmt.Sprintf(`"([ !#-\[\]-~]|\\["\\]){%d,%d}"`, p.cfg.MinKey, idempotency.MaxKey)
	pattern := fmt.Sprintf(`^([!#-+\x2D-~]{%d,%d}|%s)$`, p.cfg.MinKey, idempotency.MaxKey, quoted)
	if p.cfg.StrictKey {
		pattern = "^" + quoted + "$"
	}
	return object{
		"name": "Idempotency-Key", "in": "header", "required": p.cfg.Required,
		"description": p.keyRules() + " " + p.kept(),
		"schema":      object{"type": "string", "pattern": pattern},
	}
}

// responses returns a response for each status, named Idempotency409 and so on, because an operation can have only one for a status.
func (p *policy) responses() object {
	kinds := map[int][]kind{}
	for _, k := range p.kinds(false) {
		kinds[k.Status] = append(kinds[k.Status], k)
	}
	responses := object{}
	for status, kinds := range kinds {
		var text strings.Builder
		var types []string
		headers := object{}
		for _, k := range kinds {
			text.WriteString("- " + k.Type + ": " + k.Title + ". " + k.Advice + "\n")
			types = append(types, p.cfg.ProblemBase+k.Type)
			if k.Waits() {
				headers["Retry-After"] = ref("headers/RetryAfter")
			}
		}
		response := object{"description": text.String()}
		// With Refuse the service writes its own error format, which this document does not know.
		if p.cfg.Refuse == nil {
			response["content"] = object{"application/problem+json": object{"schema": object{
				"allOf": []any{ref("schemas/IdempotencyProblem"), object{"properties": object{"type": object{"enum": types}}}},
			}}}
		}
		if status == http.StatusUnauthorized {
			headers["WWW-Authenticate"] = ref("headers/WWWAuthenticate")
		}
		if len(headers) > 0 {
			response["headers"] = headers
		}
		responses[fmt.Sprintf("Idempotency%d", status)] = response
	}
	return responses
}

// schemas returns the schema of problems. It is empty if the service has an error format of its own, which it describes itself.
func (p *policy) schemas() object {
	if p.cfg.Refuse != nil {
		return object{}
	}
	return object{"IdempotencyProblem": p.schema()}
}

// schema lists the types as examples and not as an enum, because clients must accept types that a later version adds.
func (p *policy) schema() object {
	var types []string
	for _, k := range p.kinds(false) {
		types = append(types, p.cfg.ProblemBase+k.Type)
	}
	return object{
		"type": "object", "description": "A problem in the form of RFC 9457.", "required": []string{"type", "title", "status", "retryable"},
		"properties": object{
			"type":            object{"type": "string", "format": "uri-reference", "examples": types},
			"title":           object{"type": "string"},
			"status":          object{"type": "integer"},
			"detail":          object{"type": "string"},
			"retryable":       object{"type": "boolean", "description": "Whether the same request with the same key may succeed later."},
			"executed_status": object{"type": "integer", "description": "The status of the answer that the request had, if its body was not stored."},
		},
	}
}

// extension returns the rules for programs to read. Durations are in seconds and sizes in bytes; null means no limit. A header that ends with *
// stands for all headers that begin like it.
func (p *policy) extension() object {
	kept := statuses(p.cfg.Keep)
	mode, lease := "atomic", any(nil)
	if p.cfg.Lease != nil {
		mode, lease = "lease", p.cfg.Lease.WithDefaults().TTL.Seconds()
	}
	return object{
		"methods":           p.cfg.Methods,
		"required":          p.cfg.Required,
		"mode":              mode,
		"lease_seconds":     lease,
		"ttl_seconds":       limited(p.ttl, time.Duration.Seconds),
		"wait_seconds":      p.cfg.Wait.Seconds(),
		"max_request_bytes": limited(p.cfg.MaxBody, func(n int64) int64 { return n }),
		"max_answer_bytes":  limited(p.cfg.MaxHeld, func(n int) int { return n }),
		"max_stored_bytes":  limited(p.cfg.MaxAnswer, func(n int) int { return n }),
		"stored_headers":    p.storedHeaders(),
		"stored_statuses":   append([]string{"2XX", "3XX"}, texts(kept)...),
		"released_statuses": texts(statuses(func(status int) bool { return !slices.Contains(kept, status) })),
		"reused_status":     p.cfg.ReusedStatus,
		"excluded_members":  append([]string{}, p.cfg.Exclude...),
		"versioned":         p.cfg.APIVersion != nil,
	}
}

// limited returns nil, which is null in JSON, for -1.
func limited[T ~int | ~int64, V any](n T, value func(T) V) any {
	if n < 0 {
		return nil
	}
	return value(n)
}

// texts formats statuses as OpenAPI names them.
func texts(numbers []int) []string {
	out := make([]string, len(numbers))
	for i, n := range numbers {
		out[i] = strconv.Itoa(n)
	}
	return out
}

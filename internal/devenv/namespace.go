package devenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// adminPatience is how long one request to the admin API may take. It is long because a request that is given up
	// continues in the broker: on a slow machine the next requests would queue up behind it.
	adminPatience = time.Minute
	// removals is how often a namespace is emptied before its removal is given up. A client that still runs
	// can make a topic again.
	removals = 5
	// removalHint is what the operator of the broker can change.
	removalHint = "forceDeleteNamespaceAllowed=true in broker.conf, or the rights of an admin of the tenant, would allow it"
)

// AdminError is an answer of the admin API with a status other than 2xx.
type AdminError struct {
	Method string
	Path   string
	Status int
	Reason string // the broker's text
}

// Error names the request and the broker's reason.
func (e *AdminError) Error() string {
	return fmt.Sprintf("devenv: %s %s: %d %s: %s", e.Method, e.Path, e.Status, http.StatusText(e.Status), e.Reason)
}

// Admin sends a request to a path below /admin/v2, with a JSON body if body is not empty, and returns the answer. The
// error for a status other than 2xx is an [AdminError].
func (p *PulsarServer) Admin(ctx context.Context, method, path, body string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, adminPatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, p.AdminURL+"/admin/v2"+path, strings.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("devenv: ask Pulsar: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Close = true // leaves no connection, and so no goroutine, behind
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("devenv: ask Pulsar: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("devenv: %s %s: %w", method, path, err)
	}
	if resp.StatusCode/100 != 2 {
		return nil, &AdminError{Method: method, Path: path, Status: resp.StatusCode, Reason: string(answer)}
	}
	return answer, nil
}

// RemoveNamespace removes a namespace (tenant/name) with its topics. If the broker does not permit removal by force, it
// removes the topics one by one, which needs no setting. The error names the setting that would permit it.
func (p *PulsarServer) RemoveNamespace(ctx context.Context, name string) error {
	_, err := p.Admin(ctx, http.MethodDelete, "/namespaces/"+name+"?force=true", "")
	for range removals {
		if err == nil || isGone(err) {
			return nil
		}
		if err = p.removeTopics(ctx, name); err == nil {
			_, err = p.Admin(ctx, http.MethodDelete, "/namespaces/"+name, "")
		}
	}
	if err == nil || isGone(err) {
		return nil
	}
	return fmt.Errorf("the Pulsar namespace %s stays (%s): %w", name, removalHint, err)
}

// removeTopics removes partitioned topics first, as a whole, and then the others.
func (p *PulsarServer) removeTopics(ctx context.Context, namespace string) error {
	for _, kind := range []struct{ list, suffix string }{{"/partitioned", "/partitions"}, {"", ""}} {
		answer, err := p.Admin(ctx, http.MethodGet, "/persistent/"+namespace+kind.list, "")
		if err != nil {
			return err
		}
		var topics []string
		if err := json.Unmarshal(answer, &topics); err != nil {
			return fmt.Errorf("devenv: the topics of %s: %w", namespace, err)
		}
		for _, topic := range topics {
			short := topic[strings.LastIndex(topic, "/")+1:]
			_, err := p.Admin(ctx, http.MethodDelete, "/persistent/"+namespace+"/"+url.PathEscape(short)+kind.suffix+"?force=true", "")
			if err != nil && !isGone(err) {
				return err
			}
		}
	}
	return nil
}

func isGone(err error) bool {
	refused, ok := errors.AsType[*AdminError](err)
	return ok && refused.Status == http.StatusNotFound
}

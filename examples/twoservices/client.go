package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// order is a client. It sends a request twice, as after a lost answer, and then asks until the order has its invoice.
func order(ctx context.Context, out io.Writer, url string) error {
	for range 2 {
		answer, err := ask(ctx, http.MethodPost, url)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, "POST /orders/o-1:", answer)
	}
	for range time.Tick(50 * time.Millisecond) {
		answer, err := ask(ctx, http.MethodGet, url)
		if err != nil {
			return err
		}
		if strings.Contains(answer, `"invoice":"i`) {
			fmt.Fprintln(out, "GET /orders/o-1:", answer)
			break
		}
	}
	return nil
}

// ask returns the status and the body of an answer.
func ask(ctx context.Context, method, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return "", err
	}
	if method == http.MethodPost {
		req.Header.Set("Idempotency-Key", "key-1")
	}
	return send(req)
}

func send(req *http.Request) (string, error) {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return strings.TrimSpace(resp.Status + " " + string(body)), err
}

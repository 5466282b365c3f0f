// Package browsertest drives the console in a headless Chromium. It has tests only. They use the browser that CHROME_PATH names, or a browser of
// this machine. If there is none, they install one with apt-get where that is possible.
//
//	go -C console/browsertest test ./...
//	CONSOLE_SHOTS=../../docs/console go -C console/browsertest test -run TestPagesFit ./...   # writes the screenshots of docs
package browsertest

// Package browsertest drives the console in a headless Chromium. It has tests only. They take the browser that CHROME_PATH names, else
// one of this machine, else they install it with apt-get where that is possible.
//
//	go -C console/browsertest test ./...
//	CONSOLE_SHOTS=../../docs/console go -C console/browsertest test -run TestPagesFit ./...   # writes the screenshots of docs
package browsertest

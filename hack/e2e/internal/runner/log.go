// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
)

// StartLogged is Start of a program whose stderr goes to a file, where it can be
// read while it runs.
func StartLogged(ctx context.Context, binary, kubeconfig, file string, args ...string) (*Process, error) {
	out, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	p, err := start(ctx, binary, kubeconfig, out, args...)
	return p, errors.Join(err, out.Close()) // the program has a descriptor of its own
}

// Line is a line of a log that zap wrote.
type Line struct {
	Level string `json:"level"`
	Msg   string `json:"msg"`
	Error string `json:"error"`
	Name  string `json:"name"` // of the object that was reconciled
}

// Lines returns the lines of a log. Others' lines, that are not zap's, are left
// out, as is one that is half written.
func Lines(file string) ([]Line, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var lines []Line
	for text := range bytes.Lines(data) {
		var line Line
		if json.Unmarshal(text, &line) == nil {
			lines = append(lines, line)
		}
	}
	return lines, nil
}

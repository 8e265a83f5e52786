#!/usr/bin/env python3
"""The OpenAI client asks a running server of a text model for answers in JSON."""
import argparse
import json
import sys
import unittest

import openai
import pydantic

URL = "http://127.0.0.1:8000"
KEY = "none"


class Owner(pydantic.BaseModel):
    adult: bool


class Cat(pydantic.BaseModel):
    age: int
    fur: str = pydantic.Field(json_schema_extra={"enum": ["red", "black", "white"]})
    owner: Owner | None


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 30},
        "colours": {"type": "array", "items": {"enum": ["red", "black", "white"]}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "age", "colours"],
    "additionalProperties": False,
}


def json_schema(schema):
    return {"type": "json_schema", "json_schema": {"name": "cat", "schema": schema, "strict": True}}


class Json(unittest.TestCase):
    def setUp(self):
        self.client = openai.OpenAI(base_url=URL + "/v1", api_key=KEY, max_retries=0)
        self.model = self.client.models.list().data[0].id

    def ask(self, response_format, **fields):
        fields = {"max_tokens": 220, "temperature": 0} | fields
        return self.client.chat.completions.create(
            model=self.model,
            messages=[{"role": "user", "content": "Describe a cat as JSON."}],
            response_format=response_format,
            **fields,
        )

    def check_cat(self, text):
        cat = json.loads(text)
        self.assertEqual(set(cat), {"name", "age", "colours"})
        self.assertLessEqual(len(cat["name"]), 20)
        self.assertIn(cat["age"], range(31))
        self.assertTrue(1 <= len(cat["colours"]) <= 3)
        self.assertLessEqual(set(cat["colours"]), {"red", "black", "white"})

    def test_every_answer_is_of_the_schema(self):
        for seed in range(4):
            answer = self.ask(json_schema(SCHEMA), temperature=float(seed), seed=seed, n=2)
            for choice in answer.choices:
                self.check_cat(choice.message.content)
                self.assertEqual(choice.finish_reason, "stop")

    def test_stream_equals_document(self):
        fields = {"temperature": 1.0, "seed": 3}
        whole = self.ask(json_schema(SCHEMA), **fields).choices[0].message.content
        pieces = [event.choices[0].delta.content or ""
                  for event in self.ask(json_schema(SCHEMA), stream=True, **fields) if event.choices]
        self.assertEqual("".join(pieces), whole)
        self.check_cat(whole)

    def test_a_class_comes_back(self):
        answer = self.client.chat.completions.parse(
            model=self.model, messages=[{"role": "user", "content": "A cat?"}], response_format=Cat,
            max_tokens=220, temperature=0)
        self.assertIsInstance(answer.choices[0].message.parsed, Cat)

    def test_any_object(self):
        answer = self.ask({"type": "json_object"}, max_tokens=60).choices[0]
        self.assertTrue(answer.message.content.startswith("{"))
        if answer.finish_reason == "stop":
            self.assertIsInstance(json.loads(answer.message.content), dict)

    def test_completions_and_logprobs(self):
        answer = self.client.completions.create(
            model=self.model, prompt="A cat:", max_tokens=220, temperature=0, logprobs=1,
            extra_body={"response_format": json_schema(SCHEMA)})
        self.check_cat(answer.choices[0].text)
        self.assertTrue(all(value <= 0 for value in answer.choices[0].logprobs.token_logprobs))

    def test_limit(self):
        answer = self.ask(json_schema(SCHEMA), max_tokens=4)
        self.assertEqual(answer.choices[0].finish_reason, "length")

    def test_errors_name_the_keyword(self):
        for response_format, word in [
            (json_schema({"type": "string", "pattern": "a"}), "json_schema.schema.pattern"),
            ({"type": "xml"}, "xml"),
            (json_schema({"$ref": "#/nowhere"}), "$ref"),
        ]:
            with self.assertRaises(openai.BadRequestError) as caught:
                self.ask(response_format)
            self.assertEqual(caught.exception.body["param"], "response_format")
            self.assertIn(word, caught.exception.body["message"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?", default=URL)
    parser.add_argument("--api-key", default=KEY)
    arguments, rest = parser.parse_known_args()
    URL, KEY = arguments.url.rstrip("/"), arguments.api_key
    unittest.main(argv=[sys.argv[0], *rest])
